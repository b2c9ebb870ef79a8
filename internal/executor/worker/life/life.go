//go:build cgo

// Package life is what happens to containers from when their first process waits until nothing is left of them: the keeper holds what must outlive
// this worker, their output is moved, their end is journalled before it is reaped, and what remains is removed.
package life

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/crilog"
	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/journal"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/stdio"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/executor/worker/table"
	"monopod.dev/monopod/internal/host/proc"
)

// Life is what happens to containers that are there, whoever has asked for them: they are held, watched, seen to their exit, and removed.
type Life struct {
	cfg   Config
	exits *exitBoard
}

// Holder holds what must outlive this worker. It is the keeper; see package hold, whose Client it is.
type Holder interface {
	// Hold adds descriptors to a holding, and makes it when it is new. They are still the caller's.
	Hold(ctx context.Context, h hold.Holding, fds ...protocol.FD) error
	// Drop closes some of a holding's descriptors.
	Drop(ctx context.Context, key string, names ...string) error
	// Release ends a holding; that there is none is no error. Once it is acknowledged, the keeper journals no exit of it.
	Release(ctx context.Context, key string) error
	// Done is closed when the keeper is gone.
	Done() <-chan struct{}
}

// Config is what it needs.
type Config struct {
	Ctx       context.Context // ends with the worker
	Table     *table.Table
	Records   *record.Store
	Journal   *journal.Journal
	Keeper    Holder
	KeeperPID int
	// Remove takes away what a container's engine has of it; see Engine.
	Remove func(ctx context.Context, rec record.Record) error
	Log    *slog.Logger
}

// New returns a Life.
func New(cfg Config) *Life { return &Life{cfg: cfg, exits: newExitBoard()} }

// Exited says how a child of the keeper has ended, which the keeper has journalled.
func (l *Life) Exited(e journal.Exit) { l.exits.put(e) }

// DropExit forgets the exit of a child of the keeper that nobody waits for.
func (l *Life) DropExit(pid int, startTime uint64) { l.exits.drop(procKey{pid, startTime}) }

// Hold gives the keeper all that must outlive this worker: a pidfd, and our ends of the container's stdio. The process cannot run before it is acknowledged.
func (l *Life) Hold(ctx context.Context, rec *record.Record, ours map[string]protocol.FD) error {
	stat, err := proc.ReadStat(rec.PID)
	if err != nil {
		return err
	}
	rec.StartTime = stat.StartTime
	pidfd, err := unix.PidfdOpen(rec.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("pidfd of process %d: %w", rec.PID, err)
	}
	defer unix.Close(pidfd)
	h := hold.Holding{Key: hold.ContainerKey(rec.ID), PID: rec.PID, StartTime: rec.StartTime, Names: []string{hold.PIDFD}}
	fds := []protocol.FD{protocol.FD(pidfd)}
	rec.Pipes = map[string]uint64{}
	for name, fd := range ours {
		h.Names, fds = append(h.Names, name), append(fds, fd)
		var st unix.Stat_t
		if err := unix.Fstat(int(fd), &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
			rec.Pipes[name] = st.Ino
		}
	}
	return l.cfg.Keeper.Hold(ctx, h, fds...)
}

// Settle records a container that has been made, starts to watch it, and tells of it. A pidfd is the container's from then on; nil: there is no
// process. parent is who reaps it, and files are our ends of its stdio.
func (l *Life) Settle(c *table.Container, rec record.Record, pidfd *proc.FD, parent int, log *crilog.File, files func() map[string]*os.File) error {
	if err := l.cfg.Table.Write(c, func(r *record.Record) { *r = rec }); err != nil {
		if pidfd != nil {
			pidfd.Close()
		}
		return err
	}
	if pidfd == nil {
		if log != nil {
			log.Close()
		}
		l.cfg.Table.Show(c)
		return nil
	}
	c.SetProcess(pidfd)
	if files != nil {
		c.SetStdio(l.newStdio(c, rec, log, files()))
	}
	l.cfg.Table.Show(c)
	go l.watch(l.cfg.Ctx, c, pidfd, parent)
	return nil
}

// newStdio starts to move the container's output.
func (l *Life) newStdio(c *table.Container, rec record.Record, log *crilog.File, files map[string]*os.File) *stdio.Stdio {
	logger := l.cfg.Log.With("container", rec.ID)
	return stdio.New(stdio.Config{
		Stdin: files[hold.Stdin], Stdout: files[hold.Stdout], Stderr: files[hold.Stderr], PTY: files[hold.PTY],
		Log: log, Ended: c.Ended(), Logger: logger,
		CloseStdin: func() {
			if err := l.cfg.Keeper.Drop(l.cfg.Ctx, hold.ContainerKey(rec.ID), hold.Stdin); err != nil {
				logger.Error("the keeper keeps the container's stdin open", "error", err)
			}
		},
	})
}

// Rotation is how the log of a container is rotated.
func (l *Life) Rotation(rec record.Record) crilog.Rotation {
	return crilog.Rotation{MaxBytes: rec.LogMaxBytes, MaxFiles: rec.LogMaxFiles, Failed: func(err error) {
		l.cfg.Log.Error("a container's log grows beyond its limit", "container", rec.ID, "error", err)
	}}
}

// Resume moves a container's stdio and waits for its end again. pidfd is the container's from then on; nil: it has exited.
func (l *Life) Resume(c *table.Container, pidfd *proc.FD, files map[string]*os.File, parent int) {
	l.ResumeStdio(c, files)
	if rec := c.Record(); rec.Exit == nil {
		c.SetProcess(pidfd)
		go l.watch(l.cfg.Ctx, c, pidfd, parent)
		return
	}
	if pidfd != nil {
		pidfd.Close()
	}
	go l.releaseDrained(l.cfg.Ctx, c)
}

// ResumeStdio moves a container's stdio again.
func (l *Life) ResumeStdio(c *table.Container, files map[string]*os.File) {
	rec := c.Record()
	var log *crilog.File
	if rec.LogPath != "" {
		var err error
		if log, err = crilog.OpenAgain(rec.LogPath, l.Rotation(rec), rec.LogFixed); err != nil {
			// The container must go on, and its output must be taken from it: only the log is lost, until it is reopened.
			l.cfg.Log.Error("a container's log cannot be continued", "container", c.ID, "error", err)
		}
	}
	c.SetStdio(l.newStdio(c, rec, log, files))
}
