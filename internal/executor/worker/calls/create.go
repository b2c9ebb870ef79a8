//go:build cgo

package calls

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/executor/crilog"
	"monopod.dev/monopod/internal/executor/ocicmd"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/spawn"
	"monopod.dev/monopod/internal/executor/worker/engine"
	"monopod.dev/monopod/internal/executor/worker/group"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/executor/worker/table"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/rollback"
)

// validID reports whether id may name a container: it becomes a file's name, here and in libcontainer. (It is no
// regular expression because compiling that would delay each container's init, which is this binary too.)
func validID[ID ~string](id ID) bool {
	for i := range len(id) {
		c := id[i]
		alnum := '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
		if !alnum && (i == 0 || !strings.ContainsRune("_+.-", rune(c))) {
			return false
		}
	}
	return id != "" && len(id) <= 128
}

// checkRuntime checks what a Create asks for.
func checkRuntime(req protocol.CreateRequest) error {
	r := req.Runtime
	if r == nil {
		return nil
	}
	for name, path := range map[string]string{"path": r.Path, "root": r.Root} {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("%w: container %s: runtime.%s is %q, want an absolute path", errdefs.ErrInvalidArgument, req.ID, name, path)
		}
	}
	return nil
}

// sameRuntime reports whether two containers are made in the same way.
func sameRuntime(a, b *protocol.OCIRuntime) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// create serves Create. A caller that goes away does not end it: the caller's next attempt finds the container.
func (cs *Calls) create(ctx context.Context, req protocol.CreateRequest) (protocol.CreateResponse, error) {
	if err := errors.Join(checkLog(req), checkRuntime(req)); err != nil {
		return protocol.CreateResponse{}, err
	}
	if !validID(req.ID) {
		return protocol.CreateResponse{}, fmt.Errorf("%w: container id %q: want up to 128 letters, digits and _ + . -, the first a letter or digit", errdefs.ErrInvalidArgument, req.ID)
	}
	if !filepath.IsAbs(req.Bundle) {
		return protocol.CreateResponse{}, fmt.Errorf("%w: container %s: bundle %q is not an absolute path", errdefs.ErrInvalidArgument, req.ID, req.Bundle)
	}
	c, release, err := cs.cfg.Table.Reserve(ctx, req.ID)
	if err != nil {
		return protocol.CreateResponse{}, err
	}
	defer release()
	switch rec := c.Record(); {
	case rec.Stage == record.StageDeleting:
		return protocol.CreateResponse{}, fmt.Errorf("%w: container %s is half deleted; delete it again", errdefs.ErrFailedPrecondition, req.ID)
	case !rec.CreatedAt.IsZero() && (rec.Bundle != req.Bundle || rec.Kind != "" || !sameRuntime(rec.Runtime, req.Runtime)):
		return protocol.CreateResponse{}, fmt.Errorf("%w: container %s has the bundle %s, not %s", errdefs.ErrAlreadyExists, req.ID, rec.Bundle, req.Bundle)
	case !rec.CreatedAt.IsZero():
		return protocol.CreateResponse{PID: rec.PID}, nil
	}
	pid, err := cs.makeContainer(context.WithoutCancel(ctx), c, req)
	if err != nil {
		cs.cfg.Table.Forget(c)
		return protocol.CreateResponse{}, fmt.Errorf("create container %s: %w", req.ID, err)
	}
	return protocol.CreateResponse{PID: pid}, nil
}

// makeContainer creates the container up to where its init process waits to be let go. On an error nothing is left.
func (cs *Calls) makeContainer(ctx context.Context, c *table.Container, req protocol.CreateRequest) (pid int, err error) {
	l, err := cs.layOut(req)
	if err != nil {
		return 0, err
	}
	rec := l.rec
	if err := cs.cfg.Life.UndoEarlier(ctx, rec.ID); err != nil {
		return 0, err
	}
	// From here on a successor of this worker finds what it has to undo.
	if err := cs.cfg.Table.Write(c, func(r *record.Record) { *r = rec }); err != nil {
		return 0, err
	}
	// No bound: what Undo waits for longest is a command of the container's runtime, whose time its engine sets.
	var undo rollback.Stack
	defer func() { err = errors.Join(err, undo.Run(ctx)) }()
	undo.Add("the container", func(ctx context.Context) error { return cs.cfg.Life.Undo(ctx, rec) })
	var log *crilog.File
	if req.LogPath != "" {
		if log, err = crilog.Open(req.LogPath, cs.cfg.Life.Rotation(rec)); err != nil {
			return 0, err
		}
		undo.Add("the opening of its log", func(context.Context) error { return log.Close() })
	}
	closeScope, err := group.OpenScope(l.scope, l.config.Cgroups.Resources, true, cs.cfg.Log)
	if err != nil {
		return 0, err
	}
	defer closeScope()
	if err := cs.cfg.Hugepages.Limit(rec.Cgroups, l.hugepages); err != nil {
		return 0, err
	}
	process, err := ocicmd.NewProcess(l.spec.Process)
	if err != nil {
		return 0, err
	}
	process.Init = true
	by := cs.cfg.Engines.Choose(&rec, l.config, process)
	made, err := by.Create(ctx, engine.Initial{Container: c, Record: rec, Spec: l.spec, Seccomp: l.seccomp, Config: l.config, Process: process, Cgroups: l.cgroups, Stdin: req.Stdin})
	rec.PID = made.PID
	if made.Ends != nil {
		defer made.Ends.Close() // what has been handed on is no longer in it
	}
	rec.Stage, rec.CreatedAt = record.StageCreated, time.Now().UTC()
	var programErr *spawn.ProgramError
	if errors.As(err, &programErr) {
		// The container was complete, and only its program cannot be executed, or a poststart hook has failed. CRI's callers look for that at Start.
		rec.StartError = programErr.Text
		if err := cs.cfg.Life.Settle(c, rec, nil, 0, log, nil); err != nil {
			return 0, err
		}
		undo.Release()
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if err := cs.cfg.Life.Hold(ctx, &rec, made.Ends.Ours); err != nil {
		return 0, err
	}
	if err := failpoint.Hit("executor/worker/held"); err != nil {
		return 0, err
	}
	pidfd, err := proc.OpenFD(rec.PID) // our unreaped child: the pid is its own
	if err != nil {
		return 0, err
	}
	if err := cs.cfg.Life.Settle(c, rec, pidfd, made.Parent, log, made.Ends.Files); err != nil {
		return 0, err
	}
	undo.Release()
	return rec.PID, nil
}
