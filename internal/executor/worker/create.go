//go:build cgo

package worker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/crilog"
	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/ocicmd"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/spawn"
	"monopod.dev/monopod/internal/executor/stdio"
	"monopod.dev/monopod/internal/executor/worker/group"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// validID reports whether id may name a container: it becomes a file's name, here and in libcontainer. (It is no
// regular expression because compiling that would delay each container's init, which is this binary too.)
func validID(id string) bool {
	for i := range len(id) {
		c := id[i]
		alnum := '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
		if !alnum && (i == 0 || !strings.ContainsRune("_+.-", rune(c))) {
			return false
		}
	}
	return id != "" && len(id) <= 128
}

// create serves Create. A caller that goes away does not end it: the caller's next attempt finds the container.
func (w *Worker) create(ctx context.Context, req protocol.CreateRequest) (protocol.CreateResponse, error) {
	if !validID(req.ID) {
		return protocol.CreateResponse{}, fmt.Errorf("%w: container id %q: want up to 128 letters, digits and _ + . -, the first a letter or digit", errdefs.ErrInvalidArgument, req.ID)
	}
	if !filepath.IsAbs(req.Bundle) {
		return protocol.CreateResponse{}, fmt.Errorf("%w: container %s: bundle %q is not an absolute path", errdefs.ErrInvalidArgument, req.ID, req.Bundle)
	}
	c, release, err := w.reserve(ctx, req.ID)
	if err != nil {
		return protocol.CreateResponse{}, err
	}
	defer release()
	switch rec := c.snapshot(); {
	case rec.Stage == record.StageDeleting:
		return protocol.CreateResponse{}, fmt.Errorf("%w: container %s is half deleted; delete it again", errdefs.ErrFailedPrecondition, req.ID)
	case !rec.CreatedAt.IsZero() && (rec.Bundle != req.Bundle || rec.Kind != "" || !sameRuntime(rec.Runtime, req.Runtime)):
		return protocol.CreateResponse{}, fmt.Errorf("%w: container %s has the bundle %s, not %s", errdefs.ErrAlreadyExists, req.ID, rec.Bundle, req.Bundle)
	case !rec.CreatedAt.IsZero():
		return protocol.CreateResponse{PID: rec.PID}, nil
	}
	pid, err := w.makeContainer(context.WithoutCancel(ctx), c, req)
	if err != nil {
		w.forget(c)
		return protocol.CreateResponse{}, fmt.Errorf("create container %s: %w", req.ID, err)
	}
	return protocol.CreateResponse{PID: pid}, nil
}

// reserve returns the container of that id, a new one if there is none, and the right to change it.
func (w *Worker) reserve(ctx context.Context, id string) (*container, func(), error) {
	for {
		w.mu.Lock()
		if w.closing {
			w.mu.Unlock()
			return nil, nil, fmt.Errorf("%w: the executor is shutting down", errdefs.ErrFailedPrecondition)
		}
		c := w.containers[id]
		if c == nil {
			c = newContainer(id)
			w.containers[id] = c
		}
		w.mu.Unlock()
		release, err := c.take(ctx)
		if err != nil {
			return nil, nil, err
		}
		c.mu.Lock()
		gone := c.gone
		c.mu.Unlock()
		if !gone {
			return c, release, nil
		}
		release() // deleted while we waited
	}
}

// forget takes the container out of the table.
func (w *Worker) forget(c *container) {
	c.mu.Lock()
	c.gone = true
	c.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.containers[c.id] == c {
		delete(w.containers, c.id)
	}
}

// makeContainer creates the container up to where its init process waits to be let go. On an error nothing is left.
func (w *Worker) makeContainer(ctx context.Context, c *container, req protocol.CreateRequest) (pid int, err error) {
	l, err := w.layOut(req)
	if err != nil {
		return 0, err
	}
	rec := l.rec
	if err := w.undoEarlier(ctx, rec.ID); err != nil {
		return 0, err
	}
	// From here on a successor of this worker finds what it has to undo.
	if err := w.store.Put(rec); err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.undoCreate(ctx, rec))
		}
	}()
	var log *crilog.File
	if req.LogPath != "" {
		if log, err = crilog.Open(req.LogPath, w.rotation(rec)); err != nil {
			return 0, err
		}
		defer func() {
			if err != nil {
				log.Close()
			}
		}()
	}
	closeScope, err := group.OpenScope(l.scope, l.config.Cgroups.Resources, true, w.log)
	if err != nil {
		return 0, err
	}
	defer closeScope()
	if err := w.hugepages.Limit(rec.Cgroups, l.hugepages); err != nil {
		return 0, err
	}
	process, err := ocicmd.NewProcess(l.spec.Process)
	if err != nil {
		return 0, err
	}
	process.Init = true
	starter := w.starters.choose(&rec, l.config, process)
	ends, err := starter.create(ctx, initStart{c: c, rec: &rec, spec: l.spec, seccomp: l.seccomp, config: l.config, process: process, cgroups: l.cgroups, stdin: req.Stdin})
	if ends != nil {
		defer ends.close() // what has been handed on is no longer in it
	}
	rec.Stage, rec.CreatedAt = record.StageCreated, time.Now().UTC()
	var programErr *spawn.ProgramError
	if errors.As(err, &programErr) {
		// The container was complete, and only its program cannot be executed, or a poststart hook has failed. CRI's callers look for that at Start.
		rec.StartError = programErr.Text
		return 0, w.settle(c, rec, nil, log, ends)
	}
	if err != nil {
		return 0, err
	}
	if err := w.holdContainer(ctx, &rec, ends); err != nil {
		return 0, err
	}
	if err := failpoint.Hit("executor/worker/held"); err != nil {
		return 0, err
	}
	pidfd, err := proc.OpenFD(rec.PID) // our unreaped child: the pid is its own
	if err != nil {
		return 0, err
	}
	return rec.PID, w.settle(c, rec, pidfd, log, ends)
}

// holdContainer gives the keeper all that must outlive this worker. The process cannot run before it is acknowledged.
func (w *Worker) holdContainer(ctx context.Context, rec *record.Record, ends *ends) error {
	stat, err := proc.ReadStat(rec.PID)
	if err != nil {
		return err
	}
	rec.StartTime = stat.StartTime
	pidfd, err := unix.PidfdOpen(rec.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("pidfd of process %d: %w", rec.PID, err)
	}
	defer unix.Close(pidfd)
	h := hold.Holding{Key: containerKey(rec.ID), PID: rec.PID, StartTime: rec.StartTime, Names: []string{hold.PIDFD}}
	fds := []protocol.FD{protocol.FD(pidfd)}
	rec.Pipes = map[string]uint64{}
	for name, fd := range ends.ours {
		h.Names, fds = append(h.Names, name), append(fds, fd)
		var st unix.Stat_t
		if err := unix.Fstat(int(fd), &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
			rec.Pipes[name] = st.Ino
		}
	}
	return w.keeper.Hold(ctx, h, fds...)
}

// settle records the created container, starts to watch it, and tells of it.
func (w *Worker) settle(c *container, rec record.Record, pidfd *proc.FD, log *crilog.File, ends *ends) error {
	if err := w.store.Put(rec); err != nil {
		if pidfd != nil {
			pidfd.Close()
		}
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if pidfd != nil {
		c.pidfd = pidfd
		c.io = w.newStdio(c, rec, log, ends.files())
		go w.monitor(w.ctx, c, pidfd, w.starters.of(rec).parent())
	} else if log != nil {
		log.Close()
	}
	w.show(c, rec)
	return nil
}

// newStdio starts to move the container's output.
func (w *Worker) newStdio(c *container, rec record.Record, log *crilog.File, files map[string]*os.File) *stdio.Stdio {
	logger := w.log.With("container", rec.ID)
	return stdio.New(stdio.Config{
		Stdin: files[hold.Stdin], Stdout: files[hold.Stdout], Stderr: files[hold.Stderr], PTY: files[hold.PTY],
		Log: log, Ended: c.ended, Logger: logger,
		CloseStdin: func() {
			if err := w.keeper.Drop(w.ctx, containerKey(rec.ID), hold.Stdin); err != nil {
				logger.Error("the keeper keeps the container's stdin open", "error", err)
			}
		},
	})
}

// undoEarlier removes what an earlier Create has left that failed, and could not be undone then: a process of it may have hung in the kernel.
func (w *Worker) undoEarlier(ctx context.Context, id string) error {
	left, err := w.store.One(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return w.undoCreate(ctx, left)
}

// undoCreate removes whatever a Create that failed, or was cut short, has left.
func (w *Worker) undoCreate(ctx context.Context, rec record.Record) error {
	// The release comes before the journal: once it is acknowledged, the keeper writes no more of this process.
	err := errors.Join(w.removeRemains(ctx, rec), w.keeper.Release(ctx, containerKey(rec.ID)), w.journal.Remove(rec.PID, rec.StartTime))
	if err != nil {
		return fmt.Errorf("clean up: %w", err) // the record stays: the next worker tries again
	}
	return w.store.Remove(rec.ID)
}

// removeRemains ends all processes of the container, and removes its cgroup and what its starter has of it.
func (w *Worker) removeRemains(ctx context.Context, rec record.Record) error {
	if err := rec.Group().Kill(ctx, unix.SIGKILL); err != nil {
		return err
	}
	w.reapRemains(rec)
	if err := unpin(rec); err != nil {
		return err
	}
	w.groupEnded(rec)
	if err := w.starters.of(rec).remove(ctx, rec); err != nil {
		return err
	}
	if err := rec.Group().Remove(); err != nil {
		return err
	}
	return rec.Group().Stop()
}

// reapRemains takes away the init process of a container that will never be monitored.
func (w *Worker) reapRemains(rec record.Record) {
	if rec.PID == 0 {
		return
	}
	if stat, err := proc.ReadStat(rec.PID); err == nil && stat.StartTime == rec.StartTime && stat.PPID == os.Getpid() && stat.Dead() {
		if err := proc.Reap(rec.PID); err != nil {
			w.log.Warn("a process is left a zombie", "container", rec.ID, "pid", rec.PID, "error", err)
		}
	}
}
