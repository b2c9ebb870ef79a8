//go:build cgo

package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/spawn"
	"monopod.dev/monopod/internal/executor/stdio"
	"monopod.dev/monopod/internal/executor/worker/bundle"
	"monopod.dev/monopod/internal/host/proc"
)

// execution is a process that was started in a running container.
type execution struct {
	mu    sync.Mutex
	pidfd *proc.FD      // nil: not started yet, or ended
	early []unix.Signal // came before the process was known
	told  []unix.Signal // went to the whole session
	pty   *os.File      // the master; nil: none
}

func (x *execution) signal(sig unix.Signal) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.pidfd == nil {
		x.early = append(x.early, sig)
		return nil
	}
	return x.pidfd.Signal(sig)
}

// begin makes the process known. Who sees its first output may have sent it a signal before this.
func (x *execution) begin(pidfd *proc.FD) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pidfd = pidfd
	for _, sig := range x.early {
		pidfd.Signal(sig) // it may have ended
	}
	x.early = nil
}

func (x *execution) resize(width, height uint16) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.pty == nil {
		return fmt.Errorf("%w: the exec has no terminal, or does not run", errdefs.ErrFailedPrecondition)
	}
	return stdio.SetSize(x.pty, width, height)
}

// exec returns the execution of that id.
func (c *container) exec(id string) (*execution, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.execs[id]
	if x == nil {
		return nil, fmt.Errorf("%w: container %s has no exec %q", errdefs.ErrNotFound, c.id, id)
	}
	return x, nil
}

// exec serves Exec.
func (w *Worker) exec(ctx context.Context, call *protocol.Call, req protocol.ExecRequest) (resp protocol.ExecResponse, err error) {
	c, err := w.get(req.ID)
	if err != nil {
		return resp, err
	}
	if err := checkExec(call, req); err != nil {
		return resp, err
	}
	x := &execution{}
	c.mu.Lock()
	switch {
	case c.rec.Kind != "":
		err = c.rec.CheckContainer()
	case c.gone || c.rec.Phase() != protocol.Running:
		err = fmt.Errorf("%w: container %s does not run (%s)", errdefs.ErrFailedPrecondition, req.ID, c.rec.Phase())
	case c.execs[req.ExecID] != nil:
		err = fmt.Errorf("%w: container %s has an exec %q already", errdefs.ErrAlreadyExists, req.ID, req.ExecID)
	default:
		c.execs[req.ExecID] = x
	}
	c.mu.Unlock()
	if err != nil {
		return resp, err
	}
	defer func() {
		c.mu.Lock()
		delete(c.execs, req.ExecID)
		c.mu.Unlock()
	}()
	w.specs.ClampProcess(req.ID, req.Process)
	code, at, err := w.starters.of(c.snapshot()).exec(ctx, execStart{call: call, c: c, x: x, req: req})
	if programErr := (*spawn.ProgramError)(nil); errors.As(err, &programErr) {
		// The words are the program's alone: whoever asked knows in which container, and a user of kubectl reads them.
		err = errdefs.ErrInvalidArgument.WithMessage(err.Error())
	}
	if err != nil {
		return resp, err
	}
	return protocol.ExecResponse{Exit: protocol.Exit{Code: code, At: at}}, nil
}

func checkExec(call *protocol.Call, req protocol.ExecRequest) error {
	if !validID(req.ExecID) {
		return fmt.Errorf("%w: exec id %q: want up to 128 letters, digits and _ + . -, the first a letter or digit", errdefs.ErrInvalidArgument, req.ExecID)
	}
	if err := bundle.CheckProcess(req.Process); err != nil {
		return fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
	}
	if req.Process.Terminal {
		return checkStreams(call, true) // the socket to which the pty's master goes
	}
	return checkStreams(call, req.Stdin, req.Stdout, req.Stderr)
}

// passPTY sends the pty's master to the caller, and keeps one to resize it.
func (x *execution) passPTY(e *ends, caller protocol.FD) error {
	master := e.ours[hold.PTY]
	if err := unix.Sendmsg(int(caller), []byte{0}, unix.UnixRights(int(master)), nil, 0); err != nil {
		return fmt.Errorf("send the terminal to the caller: %w", err)
	}
	delete(e.ours, hold.PTY)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pty = master.File("pty") // no more than a handle for ioctl: neither read nor polled
	return nil
}

// killTimeout bounds the wait for a killed process to end, which it does unless the kernel is stuck.
const killTimeout = 10 * time.Second

// killAndReap ends a child of this process.
func killAndReap(pid int) error {
	fd, err := proc.OpenFD(pid)
	if err != nil {
		return err
	}
	defer fd.Close()
	if err := fd.Signal(unix.SIGKILL); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	if err := fd.Wait(ctx); err != nil {
		return err
	}
	return fd.Reap()
}
