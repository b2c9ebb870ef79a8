package keeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/host/proc"
)

// A worker that hangs is worse than one that dies: nobody replaces it. So the keeper asks it, one question at a time, whether it
// is there. A death costs the containers nothing, but it does cost the commands (execs) that run; so it is to be
// certain that the worker hangs, and is not only slow. What counts is therefore not time but the keeper's own ticks: a machine that
// sleeps, or is too busy to let the keeper run when it is due, makes the worker no older.

const (
	// watchInterval is the time between two ticks. Each costs both processes a wake-up.
	watchInterval = 10 * time.Second
	// hangs is how much silence is a hang: a minute of ticks that find the worker asleep or stopped, or five minutes of ticks that
	// find a thread of it waiting in the kernel (for a disk, or a process that is being born), where no signal would reach it anyway.
	hangs         = 30
	weightSilent  = 5
	weightBlocked = 1
	// lastWords is how long a worker that hangs has to say where: SIGQUIT makes it write its stacks to the log, and end.
	lastWords = 5 * time.Second
)

// silence adds up for how long a worker has not answered.
type silence struct{ weight int }

// tick is called at each tick, with how much later it came than it should have, whether the last question was answered, and the
// states of the worker's threads as proc(5) has them. It says whether the worker hangs.
func (s *silence) tick(interval, late time.Duration, answered bool, threads []byte) (hung bool) {
	switch {
	case answered:
		s.weight = 0
	case late > interval/2:
		// The machine has no time for the keeper, which asks for little; it may have none for the worker.
	case bytes.ContainsAny(threads, "t"):
		// Somebody looks at it with a debugger.
	case bytes.ContainsAny(threads, "D"):
		s.weight += weightBlocked
	default:
		s.weight += weightSilent
	}
	return s.weight >= hangs
}

// watchdog watches the present worker. It belongs to the goroutine of keeper.run.
type watchdog struct {
	interval time.Duration
	ticker   *time.Ticker
	last     time.Time // the last tick
	silence  silence
	conn     *protocol.Conn
	answer   chan error       // of the question under way; nil: none
	kill     <-chan time.Time // set: the worker hangs, and has this long to say where
}

func newWatchdog(interval time.Duration) *watchdog {
	if interval == 0 {
		interval = watchInterval
	}
	return &watchdog{interval: interval, ticker: time.NewTicker(interval), last: time.Now()}
}

// begin watches another worker.
func (d *watchdog) begin(conn *protocol.Conn) {
	d.silence, d.conn, d.answer, d.kill = silence{}, conn, nil, nil
}

// tick asks, and says whether the worker pid hangs. It is told once.
func (d *watchdog) tick(ctx context.Context, pid int) (hung bool, threads []byte) {
	late := time.Since(d.last) - d.interval
	d.last = time.Now()
	if pid == 0 || d.conn == nil || d.kill != nil {
		return false, nil
	}
	answered := d.answer == nil
	if !answered {
		select {
		case err := <-d.answer:
			answered = !protocol.IsLost(err) // else its end is near, or has come
			d.answer = nil
		default:
			var err error
			if threads, err = proc.ThreadStates(pid); err != nil {
				return false, nil // it ends
			}
		}
	}
	if d.silence.tick(d.interval, late, answered, threads) {
		return true, threads
	}
	if d.answer == nil {
		conn, answer := d.conn, make(chan error, 1)
		d.answer = answer
		go func() { answer <- conn.Call(ctx, protocol.Outgoing{Method: hold.MethodPing, Body: struct{}{}}, nil) }()
	}
	return false, nil
}

// watch is one tick of the watchdog. A worker that hangs is asked to say where, and is killed then.
func (k *keeper) watch(ctx context.Context, d *watchdog) {
	k.mu.Lock()
	pid := k.worker
	k.mu.Unlock()
	hung, threads := d.tick(ctx, pid)
	if !hung {
		return
	}
	k.log.Error("the worker does not answer: it is replaced; its stacks follow, if it can still tell them", "pid", pid, "threads", string(threads))
	d.kill = time.After(lastWords)
	if err := k.signalWorker(unix.SIGQUIT); err != nil {
		k.log.Warn("the worker cannot be asked where it hangs", "pid", pid, "error", err)
	}
}

// signalWorker sends a signal to the worker, if there is one: our unreaped child, so that the pid is its own.
func (k *keeper) signalWorker(sig unix.Signal) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.worker == 0 {
		return nil
	}
	if err := unix.Kill(k.worker, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal %d: %w", sig, err)
	}
	return nil
}
