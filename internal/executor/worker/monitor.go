//go:build cgo

package worker

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/journal"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/failpoint"
)

const (
	// drainGrace bounds how long an exit waits for the rest of the output. Output ends with its last writer, which may
	// be a process that outlives the container's first; it is read and logged as long as it comes.
	drainGrace = 2 * time.Second
	// reapGrace bounds how long to wait for a strange parent to reap, which is when the kernel tells of the exit.
	reapGrace = time.Second
)

// monitor waits for the process's end and sees the container to its exit. parent is the process that reaps it: this
// one, the keeper, or a stranger (when the keeper that was the parent has died).
func (w *Worker) monitor(ctx context.Context, c *container, pidfd *proc.FD, parent int) {
	if err := pidfd.Wait(ctx); err != nil {
		if ctx.Err() == nil {
			w.log.Error("container cannot be watched", "container", c.id, "error", err)
		}
		return
	}
	rec := c.snapshot()
	e, known := w.collect(ctx, rec, pidfd, parent)
	if ctx.Err() != nil {
		return
	}
	close(c.ended)
	c.mu.Lock()
	c.pidfd = nil
	c.mu.Unlock()
	pidfd.Close()
	w.conclude(ctx, c, e, known)
}

// conclude waits for the output of a process that has ended, and makes its exit known.
func (w *Worker) conclude(ctx context.Context, c *container, e journal.Exit, known bool) {
	// Where the PID namespace is shared, the other processes of the container live on after its first: they end with it.
	kill, cancel := context.WithTimeout(ctx, drainGrace)
	rec := c.snapshot()
	if err := rec.Group().Kill(kill, unix.SIGKILL); err != nil && ctx.Err() == nil {
		w.log.Warn("processes of a container that has ended could not be ended", "container", c.id, "error", err)
	}
	cancel()
	c.mu.Lock()
	io := c.io
	c.mu.Unlock()
	head := ""
	if io != nil {
		select {
		case <-io.Drained():
		case <-time.After(drainGrace):
			w.log.Info("container has ended, but something still holds its output open", "container", c.id)
		case <-ctx.Done():
			return
		}
		head = io.TakeHead()
	}
	w.finish(c, e, known, head)
	w.releaseDrained(ctx, c) // the record tells the exit
}

// collect finds out how the process ended, and has it journalled and reaped, in this order. known is false when nobody
// can tell.
func (w *Worker) collect(ctx context.Context, rec record.Record, pidfd *proc.FD, parent int) (e journal.Exit, known bool) {
	switch parent {
	case os.Getpid():
		e, err := w.collectOwn(rec, pidfd)
		if err == nil {
			return e, true
		}
		if !errors.Is(err, proc.ErrNotChild) {
			w.log.Error("exit not collected", "container", rec.ID, "pid", rec.PID, "error", err)
		}
	case w.keeperPID:
		wait, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			select {
			case <-w.keeper.Done():
				cancel()
			case <-wait.Done():
			}
		}()
		if e, err := w.exits.take(wait, procKey{rec.PID, rec.StartTime}); err == nil {
			return e, true
		}
	}
	if e, ok, err := w.journal.Get(rec.PID, rec.StartTime); err == nil && ok {
		return e, true
	}
	return w.askKernel(ctx, rec, pidfd)
}

// collectOwn is collect for a child of this process. Between the journal and the reap a kill leaves a zombie, which
// the keeper finds.
func (w *Worker) collectOwn(rec record.Record, pidfd *proc.FD) (journal.Exit, error) {
	st, ok, err := pidfd.Peek()
	if err != nil {
		return journal.Exit{}, err
	}
	if !ok {
		return journal.Exit{}, errors.New("the process has ended, but cannot be waited for")
	}
	e := journal.Exit{PID: rec.PID, StartTime: rec.StartTime, Code: st.Code, At: time.Now().UTC()}
	if stat, err := proc.ReadStat(rec.PID); err == nil {
		e.Executed = stat.Executed()
	}
	if stored, err := w.journal.Put(e); err == nil {
		e = stored
	} else {
		w.log.Error("exit not journalled: it would be lost with this process", "container", rec.ID, "error", err)
	}
	if err := failpoint.Hit("executor/worker/journalled"); err != nil {
		return e, err
	}
	if err := pidfd.Reap(); err != nil {
		w.log.Error("container's process not reaped", "container", rec.ID, "pid", rec.PID, "error", err)
	}
	return e, failpoint.Hit("executor/worker/reaped")
}

// askKernel is the last resort: newer kernels tell how a process ended after a stranger has reaped it.
func (w *Worker) askKernel(ctx context.Context, rec record.Record, pidfd *proc.FD) (journal.Exit, bool) {
	for deadline := time.After(reapGrace); ; {
		if st, ok := pidfd.ExitInfo(); ok {
			e := journal.Exit{PID: rec.PID, StartTime: rec.StartTime, Code: st.Code, At: time.Now().UTC(), Executed: true}
			if stored, err := w.journal.Put(e); err == nil {
				e = stored
			}
			return e, true
		}
		if _, err := proc.ReadStat(rec.PID); err != nil {
			return journal.Exit{}, false // reaped, and the kernel does not tell
		}
		select {
		case <-time.After(10 * time.Millisecond): // a reap is no event that a pidfd brings on all kernels
		case <-deadline:
			return journal.Exit{}, false
		case <-ctx.Done():
			return journal.Exit{}, false
		}
	}
}

// finish records the exit and makes it known. It does so even when the record cannot be written: the journal has it.
func (w *Worker) finish(c *container, e journal.Exit, known bool, head string) {
	oom := false
	if known {
		var err error
		rec := c.snapshot()
		if oom, err = rec.Group().OOMKilled(); err != nil {
			w.log.Warn("whether the kernel killed for want of memory is not known", "container", c.id, "error", err)
		}
	}
	c.mu.Lock()
	next := c.rec
	if next.StartedAt.IsZero() { // Start may have stored it without showing it yet
		if stored, err := w.store.One(c.id); err == nil {
			next.StartedAt = stored.StartedAt
		}
	}
	exit := verdict(e, known, !next.StartedAt.IsZero(), head, time.Now().UTC())
	exit.OOMKilled = oom
	next.Stage, next.Exit = record.StageExited, &exit
	if err := w.store.Put(next); err != nil {
		w.log.Error("exit not recorded; the journal has it", "container", c.id, "error", err)
	}
	w.show(c, next)
	c.mu.Unlock()
	close(c.exited)
	w.groupEnded(next)
}

// groupEnded lets the cgroups of a container go of whose exit all is stored.
func (w *Worker) groupEnded(rec record.Record) {
	if err := rec.Group().Ended(); err != nil {
		w.log.Warn("the cgroup of a container that has ended stays until it is deleted", "container", rec.ID, "error", err)
	}
}

// verdict turns what is known of a process's end into the container's exit.
func verdict(e journal.Exit, known, started bool, head string, now time.Time) protocol.Exit {
	switch {
	case !known:
		return protocol.Exit{Code: codeUnknown, At: now, Reason: protocol.ReasonUnknown,
			Message: "the container ended while no executor was there to see it"}
	case started && !e.Executed && e.Code == codeInitFailed:
		message := strings.TrimSpace(head)
		if message == "" {
			message = "the program could not be executed"
		}
		return protocol.Exit{Code: codeStartError, At: e.At, Reason: protocol.ReasonStartError, Message: message}
	}
	return protocol.Exit{Code: e.Code, At: e.At}
}
