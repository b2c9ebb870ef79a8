//go:build cgo

package spawn

/*
#include "start.h"
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

// close lets go of what a child has brought, and not of the process.
func (c *Child) close() {
	c.Status.Close()
	if c.PTY >= 0 {
		unix.Close(c.PTY)
	}
}

const (
	// patience bounds how long a new process may take to come to its gate. It does so within a millisecond or two, unless its cgroup is
	// frozen or out of CPU time, or it looks at a file that hangs.
	patience = 30 * time.Second
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
	child := &Child{Status: status, PTY: -1}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("the process did not get ready to execute its program within %s: %w", patience, context.DeadlineExceeded))
	defer cancel()
	first, err := b.spawner.born(ctx, status)
	if err == nil {
		err = b.grow(ctx, child, first)
	}
	if err != nil {
		child.close()
		if cause := context.Cause(ctx); ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = cause
		}
		return nil, err
	}
	return child, nil
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

// born takes the zygote's word.
func (s *Spawner) born(ctx context.Context, status *os.File) (*proc.FD, error) {
	m, err := receive(ctx, status)
	switch {
	case errors.Is(err, io.EOF):
		s.zygote.died()
		return nil, errors.New("the zygote has ended")
	case err != nil:
		return nil, err
	case m.kind != C.STATUS_BORN:
		m.drop()
		return nil, m.failure()
	case m.born.pid == 0:
		m.drop()
		return nil, fmt.Errorf("start a process: %w", unix.Errno(m.born.error))
	case m.fd < 0: // a limit of descriptors, here
		fd, err := proc.OpenFD(int(m.born.pid)) // our unreaped child: the pid is its own
		if err != nil {
			unix.Kill(int(m.born.pid), unix.SIGKILL)
		}
		return fd, err
	}
	return proc.FDFromRaw(m.fd, int(m.born.pid)), nil
}

// grow follows the process to its gate. It may be another one by then, which the first has left in its place.
func (b *birth) grow(ctx context.Context, child *Child, first *proc.FD) error {
	for {
		m, err := receive(ctx, child.Status)
		switch {
		case errors.Is(err, io.EOF):
			err = ErrEnded
		case err != nil:
		case m.kind == C.STATUS_TERMINAL && m.fd >= 0 && child.PTY < 0:
			child.PTY = m.fd
			continue
		case m.kind == C.STATUS_READY && m.pid == first.PID():
			child.FD = first
			return nil
		case m.kind == C.STATUS_READY:
			b.spawner.bury(first) // it has ended, or is about to
			child.FD, err = proc.OpenFD(m.pid)
			return err
		default:
			m.drop()
			err = m.failure()
		}
		if m.pid != 0 && m.pid != first.PID() {
			if second, ferr := proc.OpenFD(m.pid); ferr == nil {
				b.spawner.kill(second)
			}
		}
		b.spawner.kill(first)
		return err
	}
}

// kill ends a process that did not come to its gate.
func (s *Spawner) kill(fd *proc.FD) {
	fd.Signal(unix.SIGKILL)
	ctx, cancel := context.WithTimeout(s.ctx, killPatience)
	defer cancel()
	if err := fd.Wait(ctx); err != nil {
		s.bury(fd)
		return
	}
	fd.Reap()
	fd.Close()
}

// bury reaps a process when it ends, and waits for nobody.
func (s *Spawner) bury(fd *proc.FD) {
	if fd.Ended() {
		fd.Reap()
		fd.Close()
		return
	}
	go func() {
		defer fd.Close()
		if fd.Wait(s.ctx) == nil {
			fd.Reap()
		}
	}()
}
