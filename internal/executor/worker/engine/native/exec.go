//go:build cgo

package native

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
	"monopod.dev/monopod/internal/executor/worker/engine"
	"monopod.dev/monopod/internal/executor/worker/execution"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/executor/worker/table"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/pairs"
)

// keptFor returns what further processes need to know of a container.
func (n *Engine) keptFor(c *table.Container) (*spawn.Kept, error) {
	m := memoryOf(c)
	m.mu.Lock()
	kept := m.kept
	m.mu.Unlock()
	if kept != nil {
		return kept, nil
	}
	// A predecessor of this worker has started it.
	kept, err := n.loadKept(c.Record())
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept = kept
	return kept, nil
}

func (n *Engine) loadKept(rec record.Record) (*spawn.Kept, error) {
	spec, seccomp, err := bundle.Load(rec.Bundle)
	if err != nil {
		return nil, err
	}
	n.cfg.Specs.ClampProcess(rec.ID, spec.Process)
	config, err := n.cfg.Specs.Config(rec.ID, rec.Bundle, spec, seccomp)
	if err != nil {
		return nil, err
	}
	return n.spawner.Keep(config)
}

// Exec is engine.Engine's.
func (n *Engine) Exec(ctx context.Context, s engine.Further) (code int, at time.Time, err error) {
	x, req := s.Execution, s.Request
	// The process sends its own pidfd into a socket whose other end the keeper holds, before it runs anything of the
	// user's: should this worker be killed at any point, the next one finds the process there, and kills it.
	key := hold.ExecKey(req.ID, req.ExecID)
	pidSock, err := n.hold(ctx, key)
	if err != nil {
		return 0, at, err
	}
	cleanup := context.WithoutCancel(ctx)
	defer func() {
		if rerr := n.cfg.Keeper.Release(cleanup, key); rerr != nil && n.ctx.Err() == nil {
			n.cfg.Log.Warn("the keeper still holds an ended exec", "container", req.ID, "exec", req.ExecID, "error", rerr)
		}
	}()
	endTurn, err := n.turns.take(ctx, &memoryOf(s.Container).late)
	if err != nil {
		return 0, at, err
	}
	pidfd, err := n.begin(ctx, s, pidSock)
	endTurn()
	if err != nil {
		return 0, at, err
	}
	x.Begin(pidfd)
	defer pidfd.Close()
	defer x.End()
	if err := s.Call.Note(struct{}{}); err != nil {
		n.cfg.Log.Debug("exec's caller is gone", "container", req.ID, "error", err)
	}
	stop := context.AfterFunc(ctx, func() { pidfd.Signal(unix.SIGKILL) })
	defer stop()
	if err := pidfd.Wait(n.ctx); err != nil {
		return 0, at, err
	}
	// Before it is reaped:
	x.EndSession(ctx, n.cfg.Log, s.Container.Record(), pidfd.PID())
	st, ok, err := pidfd.Peek()
	if err != nil || !ok {
		return 0, at, fmt.Errorf("how the process ended is not known: %w", errors.Join(err, errdefs.ErrUnknown))
	}
	return st.Code, time.Now().UTC(), pidfd.Reap()
}

// hold makes the socket pair for the pidfd, and returns the end for the process.
func (n *Engine) hold(ctx context.Context, key string) (*os.File, error) {
	kept, fd, err := pairs.Descriptors(unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	theirs := os.NewFile(uintptr(fd), "pidfd socket")
	defer unix.Close(kept)
	if err := n.cfg.Keeper.Hold(ctx, hold.Holding{Key: key, Names: []string{hold.ExecSocket}}, protocol.FD(kept)); err != nil {
		theirs.Close()
		return nil, err
	}
	return theirs, nil
}

// begin starts the process with the caller's descriptors as its stdio, or with a terminal whose master goes to the caller's socket. It returns
// when the program has been executed.
func (n *Engine) begin(ctx context.Context, s engine.Further, pidSock *os.File) (pidfd *proc.FD, err error) {
	defer pidSock.Close()
	process, err := ocicmd.NewProcess(s.Request.Process)
	if err != nil {
		return nil, err
	}
	kept, err := n.keptFor(s.Container)
	if err != nil {
		return nil, err
	}
	if err := spawn.FitsExec(kept.Config(), process); err != nil {
		return nil, fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
	}
	initPID, initFD, err := s.Container.DupProcess()
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
	if !s.Request.Process.Terminal {
		closeStdio := giveStdio(process, s.Call, s.Request)
		defer closeStdio()
		stdio = stdioOf(process)
	}
	child, err := n.spawner.Exec(ctx, spawn.Exec{ID: s.Request.ID, Kept: kept, Process: process, Stdio: stdio, Terminal: s.Request.Process.Terminal,
		Cgroups: s.Container.Record().Cgroups, InitPID: initPID, InitFD: initFD, Gate: behind})
	if err != nil {
		return nil, err
	}
	defer child.Status.Close()
	behind.Close()                         // should this worker die, the process finds the gate without a keeper, and ends
	score := s.Request.Process.OOMScoreAdj // not the one that the container was made with, which an update may have changed
	if score == nil {
		score = kept.Config().OomScoreAdj
	}
	if err := n.release(ctx, s, child, pidSock, gate, score); err != nil {
		child.FD.Close()
		rec := s.Container.Record()
		return nil, errors.Join(err, execution.KillCommand(ctx, rec.Group(), child.FD.PID()))
	}
	return child.FD, nil
}

// release lets the process, which is at its gate, go on to its program, once the keeper can find it, and waits until it is there.
func (n *Engine) release(ctx context.Context, s engine.Further, child *spawn.Child, pidSock, gate *os.File, score *int) error {
	if child.PTY >= 0 {
		if err := s.Execution.PassPTY(protocol.FD(child.PTY), s.Call.FDs[0]); err != nil {
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
	ctx, cancel := context.WithTimeout(ctx, engine.ExecutionPatience)
	defer cancel()
	return spawn.AwaitExecution(ctx, child.Status)
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
