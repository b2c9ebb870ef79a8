//go:build cgo

package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/host/proc"
)

// IsDead says that the container's first process has ended.
func IsDead(rec record.Record) bool {
	stat, err := proc.ReadStat(rec.PID)
	return err != nil || stat.StartTime != rec.StartTime || stat.Dead()
}

// ExecutionPatience bounds how long a process may take to execute its program when it has been let go. It takes less than a millisecond, unless the
// file hangs; then Start says so, and the next Start waits on.
const ExecutionPatience = 30 * time.Second

// AwaitExecution returns when the init has become the program, or has ended without. There is no event for the former; it
// takes some hundred microseconds.
func AwaitExecution(ctx context.Context, ended <-chan struct{}, pid int, startTime uint64) (executed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, ExecutionPatience)
	defer cancel()
	for pause := 50 * time.Microsecond; ; pause = min(2*pause, 5*time.Millisecond) {
		stat, err := proc.ReadStat(pid)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		gone := err != nil || stat.StartTime != startTime // reaped: the exit tells whether it was executed
		if gone || stat.Executed() || stat.Dead() {
			return !gone && stat.Executed(), nil
		}
		if pause < time.Millisecond {
			ts := unix.NsecToTimespec(pause.Nanoseconds())
			_ = unix.Nanosleep(&ts, nil) // Go's own timers wait for a millisecond at least, when nothing else is to be done
			continue
		}
		select {
		case <-time.After(pause):
		case <-ended:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// ReadStat reads the stat of a container's first process.
func ReadStat(rec record.Record) (proc.Stat, error) {
	stat, err := proc.ReadStat(rec.PID)
	if err == nil && stat.StartTime != rec.StartTime {
		err = fmt.Errorf("%w: process %d", errdefs.ErrNotFound, rec.PID)
	}
	return stat, err
}
