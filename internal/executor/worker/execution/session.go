//go:build cgo

package execution

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/worker/group"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/host/proc"
)

// killTimeout bounds the wait for a killed process to end, which it does unless the kernel is stuck.
const killTimeout = 10 * time.Second

// EndSession does to the rest of an exec's session what was done to its first process, which has ended and is not reaped.
func (x *Execution) EndSession(ctx context.Context, log *slog.Logger, rec record.Record, pid int) {
	if err := x.tellRest(rec.Group(), pid); err != nil {
		log.Warn("processes of a command that was hung up may go on", "container", rec.ID, "error", err)
	}
	if ctx.Err() == nil {
		return
	}
	if err := killSession(ctx, rec.Group(), pid); err != nil {
		log.Warn("processes of a command that was killed may go on", "container", rec.ID, "error", err)
	}
}

// sessionOf returns pidfds of the processes in the cgroups that belong to the session, such as the program that a command's shell waits
// for. A process that has made a session of its own (a daemon) is none. The caller closes them.
//
// The session's number is its leader's pid, and is nobody else's as long as the leader is not reaped.
func sessionOf(in group.Group, leader int) ([]*proc.FD, error) {
	pids, err := in.Processes()
	if err != nil {
		return nil, err
	}
	var members []*proc.FD
	for _, fd := range pids {
		// The descriptor was opened first: if the process still has not ended, the pid is the one's that was read.
		if st, err := proc.ReadStat(fd.PID()); err == nil && st.Session == leader && !st.Dead() && !fd.Ended() {
			members = append(members, fd)
		} else {
			fd.Close()
		}
	}
	return members, nil
}

// SignalSession sends a signal to the execution's process and to what it has started. One that has ended is left alone, with all
// that is left of it.
func (x *Execution) SignalSession(in group.Group, sig unix.Signal) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.told = append(x.told, sig)
	if x.pidfd == nil {
		x.early = append(x.early, sig)
		return nil
	}
	members, err := sessionOf(in, x.pidfd.PID())
	ended := x.pidfd.Ended() // if not, the number was the session's
	for _, fd := range members {
		if !ended {
			err = errors.Join(err, fd.Signal(sig))
		}
		fd.Close()
	}
	return errors.Join(err, x.pidfd.Signal(sig))
}

// tellRest sends what the whole session has been told to those of it that the command forked meanwhile, once it has ended and
// is not reaped: it forks no more.
func (x *Execution) tellRest(in group.Group, leader int) error {
	x.mu.Lock()
	told := x.told
	x.mu.Unlock()
	if len(told) == 0 {
		return nil
	}
	members, err := sessionOf(in, leader)
	for _, fd := range members {
		for _, sig := range told {
			err = errors.Join(err, fd.Signal(sig))
		}
		fd.Close()
	}
	return err
}

// killSession kills what a command has started and is still in its session. The command, its leader, has ended and is not reaped.
func killSession(ctx context.Context, in group.Group, leader int) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
	defer cancel()
	for range group.KillRounds {
		members, err := sessionOf(in, leader)
		if err != nil || len(members) == 0 {
			return err
		}
		var errs []error
		for _, fd := range members {
			errs = append(errs, fd.Signal(unix.SIGKILL))
		}
		for _, fd := range members {
			errs = append(errs, fd.Wait(ctx))
			fd.Close()
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return fmt.Errorf("processes of session %d are forked faster than they are killed; limit the container's pids", leader)
}

// KillCommand kills a command that is a child of this process, with its session, and reaps it.
func KillCommand(ctx context.Context, in group.Group, pid int) error {
	fd, err := proc.OpenFD(pid)
	if err != nil {
		return err
	}
	defer fd.Close()
	if err := fd.Signal(unix.SIGKILL); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
	defer cancel()
	if err := fd.Wait(wait); err != nil {
		return err
	}
	return errors.Join(killSession(ctx, in, pid), fd.Reap())
}

// KillAndReap ends a child of this process.
func KillAndReap(pid int) error {
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
