//go:build cgo

package worker

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runc/libcontainer"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/spawn"
)

// keptFor returns what execs need to know of a spawned container; nil for one that libcontainer has started, and when it is not known,
// which libcontainer's error tells better.
func (w *Worker) keptFor(c *container) *spawn.Kept {
	c.mu.Lock()
	rec, kept := c.rec, c.kept
	c.mu.Unlock()
	if kept != nil || !rec.Spawned || w.spawner == nil {
		return kept
	}
	// A predecessor of this worker has started it.
	kept, err := w.loadKept(rec)
	if err != nil {
		w.log.Error("bundle of a running container", "container", rec.ID, "err", err)
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = kept
	return kept
}

func (w *Worker) loadKept(rec record) (*spawn.Kept, error) {
	spec, seccomp, err := loadSpec(rec.Bundle)
	if err != nil {
		return nil, err
	}
	w.host.clamp(spec.Process)
	config, err := w.libcontainerConfig(rec.ID, rec.Bundle, spec, seccomp)
	if err != nil {
		return nil, err
	}
	return w.spawner.Keep(config)
}

// execStart is what a further process is started with.
type execStart struct {
	c       *container
	x       *execution
	req     protocol.ExecRequest
	process *libcontainer.Process
	kept    *spawn.Kept
	pidSock *os.File
}

// execSpawned is startExec with package spawn.
func (w *Worker) execSpawned(ctx context.Context, call *protocol.Call, s execStart) (pid int, err error) {
	initPID, initFD, err := s.c.initFD()
	if err != nil {
		return 0, err
	}
	defer unix.Close(initFD)
	behind, gate, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer gate.Close()
	defer behind.Close()
	var stdio spawn.Stdio
	if !s.req.Process.Terminal {
		closeStdio := giveStdio(s.process, call, s.req)
		defer closeStdio()
		stdio = stdioOf(s.process)
	}
	child, err := w.spawner.Exec(ctx, spawn.Exec{ID: s.req.ID, Kept: s.kept, Process: s.process, Stdio: stdio, Terminal: s.req.Process.Terminal,
		Cgroups: s.c.snapshot().Cgroups, InitPID: initPID, InitFD: initFD, Gate: behind})
	if err != nil {
		return 0, err
	}
	defer child.FD.Close()
	defer child.Status.Close()
	behind.Close() // should this worker die, the process finds the gate without a keeper, and ends
	if err := w.releaseExec(ctx, call, s, child, gate); err != nil {
		return 0, errors.Join(err, killCommand(ctx, s.c.snapshot().Cgroups, child.FD.PID()))
	}
	return child.FD.PID(), nil
}

// releaseExec lets the process, which is at its gate, go on to its program, once the keeper can find it, and waits until it is there.
func (w *Worker) releaseExec(ctx context.Context, call *protocol.Call, s execStart, child *spawn.Child, gate *os.File) error {
	if child.PTY >= 0 {
		e := &ends{ours: map[string]protocol.FD{hold.PTY: protocol.FD(child.PTY)}, console: -1}
		defer e.close()
		if err := w.passPTY(e, s.x, call.FDs[0]); err != nil {
			return err
		}
	}
	pidfd, err := child.FD.Dup()
	if err != nil {
		return err
	}
	defer unix.Close(pidfd)
	if err := unix.Sendmsg(int(s.pidSock.Fd()), []byte{0}, unix.UnixRights(pidfd), nil, 0); err != nil {
		return fmt.Errorf("give the process to the keeper: %w", err)
	}
	score := s.req.Process.OOMScoreAdj // not the one that the container was made with, which an update may have changed
	if score == nil {
		score = s.kept.Config().OomScoreAdj
	}
	if err := setScore(child.FD.PID(), score); err != nil {
		return err
	}
	if _, err := gate.Write([]byte{0}); err != nil {
		return fmt.Errorf("let the process go on: %w", err)
	}
	return spawn.AwaitExecution(ctx, child.Status)
}

// initFD returns a duplicate of the pidfd of the container's first process.
func (c *container) initFD() (pid, fd int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pidfd == nil {
		return 0, -1, fmt.Errorf("%w: container %s has exited", errdefs.ErrFailedPrecondition, c.id)
	}
	fd, err = c.pidfd.Dup()
	return c.rec.PID, fd, err
}
