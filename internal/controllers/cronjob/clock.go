package cronjob

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// jumps calls jumped whenever the host's clock was set, or went on while the host slept, until ctx ends. Timers count the time for which the host was awake: one
// that was set for a time of day is late by as much as the host has slept since, or by as much as its clock was put forward.
func jumps(ctx context.Context, jumped func()) error {
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("timerfd_create: %w", err)
	}
	timer := os.NewFile(uintptr(fd), "timerfd")
	defer context.AfterFunc(ctx, func() { _ = timer.Close() })()
	defer func() { _ = timer.Close() }()
	raw, err := timer.SyscallConn()
	if err != nil {
		return fmt.Errorf("timerfd: %w", err)
	}
	// A time that hardly comes, in the year 2242; the kernel tells that the clock was set by ECANCELED, from either call, once for each time.
	never := unix.ItimerSpec{Value: unix.Timespec{Sec: 1 << 33}}
	for ctx.Err() == nil {
		controlErr := raw.Control(func(fd uintptr) {
			err = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, &never, nil)
		})
		if controlErr != nil {
			err = controlErr
		}
		if err == nil {
			_, err = timer.Read(make([]byte, 8))
		}
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, unix.ECANCELED):
			jumped()
		case err != nil:
			return fmt.Errorf("timerfd: %w", err)
		}
	}
	return nil
}
