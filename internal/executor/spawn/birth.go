//go:build cgo

package spawn

/*
#include "plan.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/proc"
)

// Child is a process that waits at its gate, which the caller opens by writing a byte to it.
type Child struct {
	// FD is the process, a child of this one that is not reaped; the caller's, as all that follows.
	FD *proc.FD
	// Status tells what becomes of it; see AwaitExecution.
	Status *os.File
	// PTY is the master of the process's terminal, when it has one; else -1.
	PTY int
}

// DefaultPatience bounds how long a new process may take to come to its gate. It does so within a millisecond or two, unless its cgroup is
// frozen or out of CPU time, or it looks at a file that hangs.
const DefaultPatience = 30 * time.Second

const (
	// killPatience bounds how long somebody waits for the end of a process that did not come there, and was killed. One that hangs in the
	// kernel is left behind, and is reaped when it ends.
	killPatience = time.Second
)

// birth is a start process on its way to its gate.
type birth struct {
	spawner *Spawner
	plan    *plan
	stdio   Stdio
	member  membership
	gate    *os.File
	target  int // -1: none
	newPIDs bool
}

// bear has the process born, and waits until it is at its gate. When that fails, or ctx ends, it is killed.
func (b *birth) bear(ctx context.Context) (*Child, error) {
	status, err := b.ask()
	if err != nil {
		return nil, err
	}
	patience := b.spawner.patience
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("the process did not get ready to execute its program within %s: %w", patience, context.DeadlineExceeded))
	defer cancel()
	g := &growth{status: status, pty: -1}
	for !g.grown() {
		m, err := receive(ctx, status)
		if err == nil {
			err = g.take(m)
		}
		if err == nil {
			continue
		}
		if errors.Is(err, io.EOF) {
			err = b.spawner.unborn(g)
		}
		b.spawner.abandon(g)
		if cause := context.Cause(ctx); ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = cause
		}
		return nil, err
	}
	if g.second == nil {
		return &Child{FD: g.first, Status: status, PTY: g.pty}, nil
	}
	b.spawner.bury(g.first) // it has ended, or is about to
	return &Child{FD: g.second, Status: status, PTY: g.pty}, nil
}

// ask sends the request, and returns our end of the status socket.
func (b *birth) ask() (*os.File, error) {
	plan, err := b.plan.file()
	if err != nil {
		return nil, err
	}
	defer unix.Close(plan)
	status, theirs, err := statusPair()
	if err != nil {
		return nil, err
	}
	defer unix.Close(theirs)
	j := job{plan: plan, status: theirs, gate: int(b.gate.Fd()), member: b.member, target: b.target, newPIDs: b.newPIDs}
	for i, f := range []*os.File{b.stdio.In, b.stdio.Out, b.stdio.Err} {
		j.stdio[i] = -1
		if f != nil {
			j.stdio[i] = int(f.Fd())
		}
	}
	if err := b.spawner.zygote.send(j); err != nil {
		status.Close()
		return nil, err
	}
	return status, nil
}

// unborn says why nobody has the other end of the status socket any more.
func (s *Spawner) unborn(g *growth) error {
	if g.first == nil {
		s.zygote.died()
		return errors.New("the zygote has ended")
	}
	return ErrEnded
}

// growth is what the messages have told of a start so far. The zygote's may come after those of the process that it tells of.
type growth struct {
	status *os.File
	first  *proc.FD // the start process
	second *proc.FD // the one that has gone on in its place, if there is one
	pty    int
	ready  int // the pid of the one that is at its gate
}

func (g *growth) grown() bool { return g.first != nil && g.ready != 0 }

// take learns from a message. An error is the end of the start.
func (g *growth) take(m message) (err error) {
	switch {
	case m.kind == C.STATUS_BORN && g.first == nil && m.born.pid != 0:
		if m.fd >= 0 {
			g.first = proc.FDFromRaw(m.fd, int(m.born.pid))
			return nil
		}
		g.first, err = child(int(m.born.pid))
		return err
	case m.kind == C.STATUS_BORN && g.first == nil:
		m.drop()
		return fmt.Errorf("start a process: %w", unix.Errno(m.born.error))
	case m.kind == C.STATUS_SUCCEEDED && g.second == nil:
		g.second, err = child(m.pid)
		return err
	case m.kind == C.STATUS_TERMINAL && m.fd >= 0 && g.pty < 0:
		g.pty = m.fd
		return nil
	case m.kind == C.STATUS_READY:
		g.ready = m.pid
		return nil
	}
	m.drop()
	return m.failure()
}

// child opens a pidfd of a child of this process that is not reaped: the pid is its own.
func child(pid int) (*proc.FD, error) {
	fd, err := proc.OpenFD(pid)
	if err != nil {
		unix.Kill(pid, unix.SIGKILL)
	}
	return fd, err
}

// abandon kills what did not come to its gate. What hangs in the kernel is left behind, and reaped when it ends.
func (s *Spawner) abandon(g *growth) {
	g.kill()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.collect(g)
	}()
	select {
	case <-done:
	case <-time.After(killPatience):
	}
}

func (g *growth) kill() {
	for _, fd := range []*proc.FD{g.first, g.second} {
		if fd != nil {
			fd.Signal(unix.SIGKILL)
		}
	}
}

// collect reaps processes that have been killed, of which some may not have been heard of yet. In a PID namespace that is the container's, a
// process that is not reaped keeps the container from ending.
func (s *Spawner) collect(g *growth) {
	for {
		g.status.SetReadDeadline(time.Time{}) // what came of the caller's is over
		m, err := receive(s.ctx, g.status)
		if errors.Is(err, os.ErrDeadlineExceeded) && s.ctx.Err() == nil {
			continue
		}
		if err != nil { // they have ended: nobody has the other end any more
			break
		}
		_ = g.take(m) // it may tell why it ends, which nobody wants to know any more
		g.kill()
	}
	g.status.Close()
	if g.pty >= 0 {
		unix.Close(g.pty)
	}
	for _, fd := range []*proc.FD{g.second, g.first} {
		if fd == nil {
			continue
		}
		if fd.Wait(s.ctx) == nil {
			_ = fd.Reap()
		}
		fd.Close()
	}
	if g.first == nil || s.ctx.Err() != nil {
		return
	}
	// A successor that was killed before it could say a word is in the group of the first; its number is nobody else's as long.
	for {
		err := unix.Waitid(unix.P_PGID, g.first.PID(), nil, unix.WEXITED, nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// bury reaps a process when it ends, and waits for nobody.
func (s *Spawner) bury(fd *proc.FD) {
	if fd.Ended() {
		_ = fd.Reap()
		fd.Close()
		return
	}
	go func() {
		defer fd.Close()
		if fd.Wait(s.ctx) == nil {
			_ = fd.Reap()
		}
	}()
}
