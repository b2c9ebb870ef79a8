//go:build cgo

package calls

import (
	"context"
	"fmt"
	"os"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/stdio"
)

// attach serves Attach.
func (cs *Calls) attach(ctx context.Context, call *protocol.Call, req protocol.AttachRequest) error {
	c, err := cs.cfg.Table.Existing(req.ID)
	if err != nil {
		return err
	}
	if err := checkStreams(call, req.Stdin, req.Stdout, req.Stderr); err != nil {
		return err
	}
	if req.To != "" && (!req.Stdin || req.Stdout || req.Stderr || req.Name != "") {
		return fmt.Errorf("%w: Attach to %q brings something else than a stdin", errdefs.ErrInvalidArgument, req.To)
	}
	io, rec := c.Stdio(), c.Record()
	if err := rec.CheckContainer(); err != nil {
		return err
	}
	if io == nil {
		return nil // it has ended, and all its output is in the log
	}
	fds := call.FDs
	call.FDs = nil
	next := func(wanted bool, name string) (f *os.File) {
		if wanted {
			f, fds = fds[0].Pollable(name), fds[1:]
		}
		return f
	}
	a := stdio.Attachment{Name: req.Name, StdinOnce: rec.StdinOnce}
	a.Stdin = next(req.Stdin, "client's stdin")
	a.Stdout = next(req.Stdout, "client's stdout")
	a.Stderr = next(req.Stderr, "client's stderr")
	if req.To != "" {
		return io.Feed(ctx, req.To, a)
	}
	a.Joined = func() { _ = call.Note(protocol.Attached{}) } // a lost connection ends the call
	return io.Attach(ctx, a)
}

// checkStreams checks that a call brought a descriptor for each stream that it names.
func checkStreams(call *protocol.Call, named ...bool) error {
	want := 0
	for _, n := range named {
		if n {
			want++
		}
	}
	if len(call.FDs) != want {
		return fmt.Errorf("%w: %s names %d streams and brings %d descriptors", errdefs.ErrInvalidArgument, call.Method, want, len(call.FDs))
	}
	return nil
}

// resize serves Resize.
func (cs *Calls) resize(req protocol.ResizeRequest) error {
	c, err := cs.cfg.Table.Existing(req.ID)
	if err != nil {
		return err
	}
	if req.ExecID != "" {
		x, err := c.Exec(req.ExecID)
		if err != nil {
			return err
		}
		return x.Resize(req.Width, req.Height)
	}
	io := c.Stdio()
	if io == nil {
		return fmt.Errorf("%w: container %s has exited", errdefs.ErrFailedPrecondition, req.ID)
	}
	return io.Resize(req.Width, req.Height)
}
