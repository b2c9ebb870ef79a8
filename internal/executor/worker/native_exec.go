//go:build cgo

package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runc/libcontainer"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/ocicmd"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/spawn"
	"monopod.dev/monopod/internal/executor/worker/bundle"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/pairs"
)

// keptFor returns what further processes need to know of a container.
func (n *native) keptFor(c *container) (*spawn.Kept, error) {
	c.mu.Lock()
	rec, kept := c.rec, c.kept
	c.mu.Unlock()
	if kept != nil {
		return kept, nil
	}
	// A predecessor of this worker has started it.
	kept, err := n.loadKept(rec)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = kept
	return kept, nil
}

func (n *native) loadKept(rec record.Record) (*spawn.Kept, error) {
	spec, seccomp, err := bundle.Load(rec.Bundle)
	if err != nil {
		return nil, err
	}
	n.specs.ClampProcess(rec.ID, spec.Process)
	config, err := n.specs.Config(rec.ID, rec.Bundle, spec, seccomp)
	if err != nil {
		return nil, err
	}
	return n.spawner.Keep(config)
}

// exec starts the process, waits for its end, and reaps it. The process is killed when ctx ends.
func (n *native) exec(ctx context.Context, s execStart) (code int, at time.Time, err error) {
	x, req := s.x, s.req
	// The process sends its own pidfd into a socket whose other end the keeper holds, before it runs anything of the
	// user's: should this worker be killed at any point, the next one finds the process there, and kills it.
	key := execPrefix + req.ID + "/" + req.ExecID
	pidSock, err := n.hold(ctx, key)
	if err != nil {
		return 0, at, err
	}
	cleanup := context.WithoutCancel(ctx)
	defer func() {
		if rerr := n.keeper.Release(cleanup, key); rerr != nil && n.ctx.Err() == nil {
			n.log.Warn("the keeper still holds an ended exec", "container", req.ID, "exec", req.ExecID, "error", rerr)
		}
	}()
	endTurn, err := n.turns.take(ctx, &s.c.late)
	if err != nil {
		return 0, at, err
	}
	pidfd, err := n.begin(ctx, s, pidSock)
	endTurn()
	if err != nil {
		return 0, at, err
	}
	x.begin(pidfd)
	defer pidfd.Close()
	defer x.end()
	if err := s.call.Note(struct{}{}); err != nil {
		n.log.Debug("exec's caller is gone", "container", req.ID, "error", err)
	}
	stop := context.AfterFunc(ctx, func() { pidfd.Signal(unix.SIGKILL) })
	defer stop()
	if err := pidfd.Wait(n.ctx); err != nil {
		return 0, at, err
	}
	// Before it is reaped:
	x.endSession(ctx, n.log, s.c.snapshot(), pidfd.PID())
	st, ok, err := pidfd.Peek()
	if err != nil || !ok {
		return 0, at, fmt.Errorf("how the process ended is not known: %w", errors.Join(err, errdefs.ErrUnknown))
	}
	return st.Code, time.Now().UTC(), pidfd.Reap()
}

// hold makes the socket pair for the pidfd, and returns the end for the process.
func (n *native) hold(ctx context.Context, key string) (*os.File, error) {
	kept, fd, err := pairs.Descriptors(unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	theirs := os.NewFile(uintptr(fd), "pidfd socket")
	defer unix.Close(kept)
	if err := n.keeper.Hold(ctx, hold.Holding{Key: key, Names: []string{hold.ExecSocket}}, protocol.FD(kept)); err != nil {
		theirs.Close()
		return nil, err
	}
	return theirs, nil
}

// begin starts the process with the caller's descriptors as its stdio, or with a terminal whose master goes to the caller's socket. It returns
// when the program has been executed.
func (n *native) begin(ctx context.Context, s execStart, pidSock *os.File) (pidfd *proc.FD, err error) {
	defer pidSock.Close()
	process, err := ocicmd.NewProcess(s.req.Process)
	if err != nil {
		return nil, err
	}
	kept, err := n.keptFor(s.c)
	if err != nil {
		return nil, err
	}
	if err := spawn.FitsExec(kept.Config(), process); err != nil {
		return nil, fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
	}
	initPID, initFD, err := s.c.initFD()
	if err != nil {
		return nil, err
	}
	defer unix.Close(initFD)
	behind, gate, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer gate.Close()
	defer behind.Close()
	var stdio spawn.Stdio
	if !s.req.Process.Terminal {
		closeStdio := giveStdio(process, s.call, s.req)
		defer closeStdio()
		stdio = stdioOf(process)
	}
	child, err := n.spawner.Exec(ctx, spawn.Exec{ID: s.req.ID, Kept: kept, Process: process, Stdio: stdio, Terminal: s.req.Process.Terminal,
		Cgroups: s.c.snapshot().Cgroups, InitPID: initPID, InitFD: initFD, Gate: behind})
	if err != nil {
		return nil, err
	}
	defer child.Status.Close()
	behind.Close()                     // should this worker die, the process finds the gate without a keeper, and ends
	score := s.req.Process.OOMScoreAdj // not the one that the container was made with, which an update may have changed
	if score == nil {
		score = kept.Config().OomScoreAdj
	}
	if err := n.release(ctx, s, child, pidSock, gate, score); err != nil {
		child.FD.Close()
		rec := s.c.snapshot()
		return nil, errors.Join(err, killCommand(ctx, rec.Group(), child.FD.PID()))
	}
	return child.FD, nil
}

// release lets the process, which is at its gate, go on to its program, once the keeper can find it, and waits until it is there.
func (n *native) release(ctx context.Context, s execStart, child *spawn.Child, pidSock, gate *os.File, score *int) error {
	if child.PTY >= 0 {
		e := emptyEnds()
		e.ours[hold.PTY] = protocol.FD(child.PTY)
		defer e.close()
		if err := s.x.passPTY(e, s.call.FDs[0]); err != nil {
			return err
		}
	}
	pidfd, err := child.FD.Dup()
	if err != nil {
		return err
	}
	defer unix.Close(pidfd)
	if err := unix.Sendmsg(int(pidSock.Fd()), []byte{0}, unix.UnixRights(pidfd), nil, 0); err != nil {
		return fmt.Errorf("give the process to the keeper: %w", err)
	}
	if err := setScore(child.FD.PID(), score); err != nil {
		return err
	}
	if _, err := gate.Write([]byte{0}); err != nil {
		return fmt.Errorf("let the process go on: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, executionPatience)
	defer cancel()
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

// giveStdio makes the call's descriptors the process's stdio. A stream that is not named is /dev/null.
func giveStdio(p *libcontainer.Process, call *protocol.Call, req protocol.ExecRequest) (closeAll func()) {
	var files []*os.File
	next := func(name string) *os.File {
		fd := call.FDs[len(files)]
		unix.SetNonblock(int(fd), false) // programs do not expect a stdio that says EAGAIN
		f := fd.File(name)
		files = append(files, f)
		return f
	}
	if req.Stdin {
		p.Stdin = next("stdin")
	}
	if req.Stdout {
		p.Stdout = next("stdout")
	}
	if req.Stderr {
		p.Stderr = next("stderr")
	}
	call.FDs = nil
	return func() {
		for _, f := range files {
			f.Close()
		}
	}
}
