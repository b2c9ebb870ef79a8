//go:build cgo

package worker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// start serves Start.
func (w *Worker) start(ctx context.Context, id string) (protocol.StartResponse, error) {
	c, release, err := w.lockExisting(ctx, id)
	if err != nil {
		return protocol.StartResponse{}, err
	}
	defer release()
	rec := c.snapshot()
	switch {
	case rec.Exit != nil && rec.Exit.Reason == protocol.ReasonStartError:
		return protocol.StartResponse{}, startError(id, rec.Exit.Message)
	case rec.Exit != nil:
		return protocol.StartResponse{}, fmt.Errorf("%w: container %s has exited with code %d; it cannot be started again", errdefs.ErrFailedPrecondition, id, rec.Exit.Code)
	case rec.StartError != "":
		now := time.Now().UTC()
		err := w.change(c, func(r *record.Record) {
			r.Stage, r.StartedAt = record.StageExited, now
			r.Exit = &protocol.Exit{Code: codeStartError, At: now, Reason: protocol.ReasonStartError, Message: r.StartError}
		})
		if err != nil {
			return protocol.StartResponse{}, err
		}
		close(c.ended)
		close(c.exited)
		return protocol.StartResponse{}, startError(id, rec.StartError)
	case !rec.StartedAt.IsZero():
		return protocol.StartResponse{StartedAt: rec.StartedAt}, nil
	}
	if err := w.letGo(context.WithoutCancel(ctx), c, rec); err != nil {
		return protocol.StartResponse{}, err
	}
	rec = c.snapshot()
	return protocol.StartResponse{StartedAt: rec.StartedAt}, nil
}

const (
	codeStartError = 128 // exit code of a container whose program cannot be executed, as CRI's callers know it
	codeUnknown    = 255 // exit code of a container whose exit nobody saw
	codeInitFailed = 255 // exit status of libcontainer's init code when it fails
)

func startError(id, message string) error {
	return fmt.Errorf("start container %s: %s", id, message)
}

// letGo lets the first process, which waits, execute the program.
func (w *Worker) letGo(ctx context.Context, c *container, rec record.Record) error {
	// StartedAt is stored without being shown: the program does not run yet, but a successor must expect that it does.
	rec.Stage, rec.StartedAt = record.StageRunning, time.Now().UTC()
	if err := w.store.Put(rec); err != nil {
		return err
	}
	if err := failpoint.Hit("executor/worker/starting"); err != nil {
		return err
	}
	executed, err := w.starters.of(rec).start(ctx, c, rec)
	if err != nil {
		return fmt.Errorf("start container %s: %w", rec.ID, err)
	}
	if executed {
		c.mu.Lock()
		if c.rec.Exit == nil {
			w.show(c, rec)
		}
		io := c.io
		c.mu.Unlock()
		io.TakeHead() // what the program prints is no error of the init code
		return nil
	}
	// Nobody is shown that it runs, for it never did: a pod would be ready for a moment.
	select {
	case <-c.exited:
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
	if final := c.snapshot(); final.Exit.Reason == protocol.ReasonStartError {
		return startError(rec.ID, final.Exit.Message)
	}
	return nil // it was killed before it came to execute: that is no error of Start's
}

// isDead says that the container's first process has ended.
func isDead(rec record.Record) bool {
	stat, err := proc.ReadStat(rec.PID)
	return err != nil || stat.StartTime != rec.StartTime || stat.Dead()
}

// executionPatience bounds how long a process may take to execute its program when it has been let go. It takes less than a millisecond, unless the
// file hangs; then Start says so, and the next Start waits on.
const executionPatience = 30 * time.Second

// awaitExecution returns when the init has become the program, or has ended without. There is no event for the former; it
// takes some hundred microseconds.
func awaitExecution(ctx context.Context, ended <-chan struct{}, pid int, startTime uint64) (executed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, executionPatience)
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
