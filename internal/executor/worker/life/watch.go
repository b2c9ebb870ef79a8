//go:build cgo

package life

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/journal"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/executor/worker/table"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/wait"
)

const (
	CodeStartError = 128 // exit code of a container whose program cannot be executed, as CRI's callers know it
	codeUnknown    = 255 // exit code of a container whose exit nobody saw
	codeInitFailed = 255 // exit status of libcontainer's init code when it fails
)

// Stranger stands for a parent that is neither this process nor its keeper.
const Stranger = 0

const (
	// drainGrace bounds how long an exit waits for the rest of the output. Output ends with its last writer, which may
	// be a process that outlives the container's first; it is read and logged as long as it comes.
	drainGrace = 2 * time.Second
	// reapGrace bounds how long to wait for a strange parent to reap, which is when the kernel tells of the exit.
	reapGrace = time.Second
)

// watch waits for the process's end and sees the container to its exit. parent is the process that reaps it: this
// one, the keeper, or a Stranger (when the keeper that was the parent has died).
func (l *Life) watch(ctx context.Context, c *table.Container, pidfd *proc.FD, parent int) {
	if err := pidfd.Wait(ctx); err != nil {
		if ctx.Err() == nil {
			l.cfg.Log.Error("container cannot be watched", "container", c.ID, "error", err)
		}
		return
	}
	rec := c.Record()
	e, known := l.collect(ctx, rec, pidfd, parent)
	if ctx.Err() != nil {
		return
	}
	c.SetEnded()
	c.SetProcess(nil)
	pidfd.Close()
	l.Conclude(ctx, c, e, known)
}

// Conclude waits for the output of a process that has ended, and makes its exit known.
func (l *Life) Conclude(ctx context.Context, c *table.Container, e journal.Exit, known bool) {
	// Where the PID namespace is shared, the other processes of the container live on after its first: they end with it.
	kill, cancel := context.WithTimeout(ctx, drainGrace)
	rec := c.Record()
	if err := rec.Group().Kill(kill, unix.SIGKILL); err != nil && ctx.Err() == nil {
		l.cfg.Log.Warn("processes of a container that has ended could not be ended", "container", c.ID, "error", err)
	}
	cancel()
	head := ""
	if io := c.Stdio(); io != nil {
		select {
		case <-io.Drained():
		case <-time.After(drainGrace):
			l.cfg.Log.Info("container has ended, but something still holds its output open", "container", c.ID)
		case <-ctx.Done():
			return
		}
		head = io.TakeHead()
	}
	l.finish(c, e, known, head)
	l.releaseDrained(ctx, c) // the record tells the exit
}

// collect finds out how the process ended, and has it journalled and reaped, in this order. known is false when nobody
// can tell.
func (l *Life) collect(ctx context.Context, rec record.Record, pidfd *proc.FD, parent int) (e journal.Exit, known bool) {
	switch parent {
	case os.Getpid():
		e, err := l.collectOwn(rec, pidfd)
		if err == nil {
			return e, true
		}
		if !errors.Is(err, proc.ErrNotChild) {
			l.cfg.Log.Error("exit not collected", "container", rec.ID, "pid", rec.PID, "error", err)
		}
	case l.cfg.KeeperPID:
		wait, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			select {
			case <-l.cfg.Keeper.Done():
				cancel()
			case <-wait.Done():
			}
		}()
		if e, err := l.exits.take(wait, procKey{rec.PID, rec.StartTime}); err == nil {
			return e, true
		}
	}
	if e, ok, err := l.cfg.Journal.Get(rec.PID, rec.StartTime); err == nil && ok {
		return e, true
	}
	return l.askKernel(ctx, rec, pidfd)
}

// collectOwn is collect for a child of this process. Between the journal and the reap a kill leaves a zombie, which
// the keeper finds.
func (l *Life) collectOwn(rec record.Record, pidfd *proc.FD) (journal.Exit, error) {
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
	if stored, err := l.cfg.Journal.Put(e); err == nil {
		e = stored
	} else {
		l.cfg.Log.Error("exit not journalled: it would be lost with this process", "container", rec.ID, "error", err)
	}
	if err := failpoint.Hit("executor/worker/journalled"); err != nil {
		return e, err
	}
	if err := pidfd.Reap(); err != nil {
		l.cfg.Log.Error("container's process not reaped", "container", rec.ID, "pid", rec.PID, "error", err)
	}
	return e, failpoint.Hit("executor/worker/reaped")
}

// askKernel is the last resort: newer kernels tell how a process ended after a Stranger has reaped it.
func (l *Life) askKernel(ctx context.Context, rec record.Record, pidfd *proc.FD) (journal.Exit, bool) {
	ctx, cancel := context.WithTimeout(ctx, reapGrace)
	defer cancel()
	for {
		if st, ok := pidfd.ExitInfo(); ok {
			e := journal.Exit{PID: rec.PID, StartTime: rec.StartTime, Code: st.Code, At: time.Now().UTC(), Executed: true}
			if stored, err := l.cfg.Journal.Put(e); err == nil {
				e = stored
			}
			return e, true
		}
		if _, err := proc.ReadStat(rec.PID); err != nil {
			return journal.Exit{}, false // reaped, and the kernel does not tell
		}
		if wait.For(ctx, 10*time.Millisecond) != nil { // a reap is no event that a pidfd brings on all kernels
			return journal.Exit{}, false
		}
	}
}

// finish records the exit and makes it known. It does so even when the record cannot be written: the journal has it.
func (l *Life) finish(c *table.Container, e journal.Exit, known bool, head string) {
	oom := false
	if known {
		var err error
		rec := c.Record()
		if oom, err = rec.Group().OOMKilled(); err != nil {
			l.cfg.Log.Warn("whether the kernel killed for want of memory is not known", "container", c.ID, "error", err)
		}
	}
	err := l.cfg.Table.Amend(c, func(r *record.Record) { // Start may have stored that the program runs, without showing it yet
		exit := verdict(e, known, !r.StartedAt.IsZero(), head, time.Now().UTC())
		exit.OOMKilled = oom
		r.Stage, r.Exit = record.StageExited, &exit
	})
	if err != nil {
		l.cfg.Log.Error("exit not recorded; the journal has it", "container", c.ID, "error", err)
	}
	c.SetExited()
	l.GroupEnded(c.Record())
}

// GroupEnded lets the cgroups of a container go of whose exit all is stored.
func (l *Life) GroupEnded(rec record.Record) {
	if err := rec.Group().Ended(); err != nil {
		l.cfg.Log.Warn("the cgroup of a container that has ended stays until it is deleted", "container", rec.ID, "error", err)
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
		return protocol.Exit{Code: CodeStartError, At: e.At, Reason: protocol.ReasonStartError, Message: message}
	}
	return protocol.Exit{Code: e.Code, At: e.At}
}

// releaseDrained lets go of what the keeper holds of an exited container, when its output has ended.
func (l *Life) releaseDrained(ctx context.Context, c *table.Container) {
	if io := c.Stdio(); io != nil {
		select {
		case <-io.Drained():
		case <-ctx.Done():
			return
		}
	}
	if err := l.cfg.Keeper.Release(ctx, hold.ContainerKey(c.ID)); err != nil && ctx.Err() == nil {
		l.cfg.Log.Warn("the keeper still holds an ended container", "container", c.ID, "error", err)
	}
}
