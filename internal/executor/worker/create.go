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
	"github.com/opencontainers/cgroups/manager"
	"github.com/opencontainers/runc/libcontainer"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/crilog"
	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/stdio"
	"monopod.dev/monopod/internal/failpoint"
	"monopod.dev/monopod/internal/host/proc"
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
	case rec.Stage == stageDeleting:
		return protocol.CreateResponse{}, fmt.Errorf("%w: container %s is half deleted; delete it again", errdefs.ErrFailedPrecondition, req.ID)
	case !rec.CreatedAt.IsZero() && rec.Bundle != req.Bundle:
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
	spec, err := loadSpec(req.Bundle)
	if err != nil {
		return 0, err
	}
	w.clampProcess(req.ID, spec.Process)
	config, err := libcontainerConfig(req.ID, req.Bundle, spec)
	if err != nil {
		return 0, err
	}
	cm, err := manager.New(config.Cgroups)
	if err != nil {
		return 0, fmt.Errorf("cgroup %s: %w", spec.Linux.CgroupsPath, err)
	}
	rec := record{BootID: w.bootID, ID: req.ID, Bundle: req.Bundle, LogPath: req.LogPath, Stdin: req.Stdin, StdinOnce: req.StdinOnce,
		Terminal: spec.Process.Terminal, Stage: stageCreating, Cgroups: cm.GetPaths()}
	// From here on a successor of this worker finds what it has to undo.
	if err := w.store.put(rec); err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.undoCreate(ctx, rec))
		}
	}()
	var log *crilog.File
	if req.LogPath != "" {
		if log, err = crilog.Open(req.LogPath); err != nil {
			return 0, err
		}
		defer func() {
			if err != nil {
				log.Close()
			}
		}()
	}
	process, err := newProcess(spec.Process)
	if err != nil {
		return 0, err
	}
	process.Init = true
	ends, err := newEnds(process, spec.Process.Terminal, req.Stdin)
	if err != nil {
		return 0, err
	}
	defer ends.close() // what has been handed on is no longer in it
	lc, err := libcontainer.Create(w.libDir, req.ID, config)
	if err != nil {
		return 0, err
	}
	startErr := lc.Start(process)
	ends.closeTheirs()
	if startErr != nil && !w.initWasReady(req.ID) {
		return 0, startErr
	}
	rec.Stage, rec.CreatedAt = stageCreated, time.Now().UTC()
	if startErr != nil {
		// The container was complete, and only its program cannot be executed. CRI's callers look for that at Start.
		rec.StartError = startErr.Error()
		return 0, w.settle(c, rec, nil, log, ends)
	}
	if rec.PID, err = process.Pid(); err != nil {
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

// initWasReady reports whether a failed init got as far as libcontainer's "ready": all that is left after that is to
// become the user and to find and execute the program. libcontainer stores its state at that very point.
func (w *Worker) initWasReady(id string) bool {
	_, err := os.Stat(filepath.Join(w.libDir, id, "state.json"))
	return err == nil
}

// holdContainer gives the keeper all that must outlive this worker. The process cannot run before it is acknowledged.
func (w *Worker) holdContainer(ctx context.Context, rec *record, ends *ends) error {
	stat, err := proc.ReadStat(rec.PID)
	if err != nil {
		return err
	}
	rec.StartTime = stat.StartTime
	if err := ends.receivePTY(); err != nil {
		return err
	}
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
func (w *Worker) settle(c *container, rec record, pidfd *proc.FD, log *crilog.File, ends *ends) error {
	if err := w.store.put(rec); err != nil {
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
		go w.monitor(w.ctx, c, pidfd, os.Getpid())
	} else if log != nil {
		log.Close()
	}
	w.show(c, rec)
	return nil
}

// newStdio starts to move the container's output.
func (w *Worker) newStdio(c *container, rec record, log *crilog.File, files map[string]*os.File) *stdio.Stdio {
	logger := w.log.With("container", rec.ID)
	return stdio.New(stdio.Config{
		Stdin: files[hold.Stdin], Stdout: files[hold.Stdout], Stderr: files[hold.Stderr], PTY: files[hold.PTY],
		Log: log, Ended: c.ended, Logger: logger,
		CloseStdin: func() {
			if err := w.keeper.Drop(w.ctx, containerKey(rec.ID), hold.Stdin); err != nil {
				logger.Error("the keeper keeps the container's stdin open", "err", err)
			}
		},
	})
}

// undoCreate removes whatever a Create that failed, or was cut short, has left.
func (w *Worker) undoCreate(ctx context.Context, rec record) error {
	// The release comes before the journal: once it is acknowledged, the keeper writes no more of this process.
	err := errors.Join(w.removeRemains(ctx, rec), w.keeper.Release(ctx, containerKey(rec.ID)), w.journal.Remove(rec.PID, rec.StartTime))
	if err != nil {
		return fmt.Errorf("clean up: %w", err) // the record stays: the next worker tries again
	}
	return w.store.remove(rec.ID)
}

// removeRemains ends all processes of the container, and removes its cgroup and libcontainer's state of it.
func (w *Worker) removeRemains(ctx context.Context, rec record) error {
	if err := killCgroup(ctx, rec.Cgroups, unix.SIGKILL); err != nil {
		return err
	}
	w.reapRemains(rec)
	if lc, err := libcontainer.Load(w.libDir, rec.ID); err == nil {
		if err := lc.Destroy(); err != nil {
			return err
		}
	}
	if err := removeCgroups(rec.Cgroups); err != nil {
		return err
	}
	err := os.RemoveAll(filepath.Join(w.libDir, rec.ID))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// reapRemains takes away the init process of a container that will never be monitored.
func (w *Worker) reapRemains(rec record) {
	if rec.PID == 0 {
		return
	}
	if stat, err := proc.ReadStat(rec.PID); err == nil && stat.StartTime == rec.StartTime && stat.PPID == os.Getpid() && stat.Dead() {
		if err := proc.Reap(rec.PID); err != nil {
			w.log.Warn("a process is left a zombie", "container", rec.ID, "pid", rec.PID, "err", err)
		}
	}
}
