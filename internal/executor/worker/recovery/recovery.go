//go:build cgo

// Package recovery goes on where a worker before this one was stopped, by what that one has recorded, what the keeper holds and the journal of exits.
package recovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/journal"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/worker/life"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/executor/worker/table"
	"monopod.dev/monopod/internal/host/proc"
)

// action is what a worker does about a container that it finds recorded.
type action string

const (
	actUndo     action = "undo"     // it was being created
	actDelete   action = "delete"   // it was being deleted
	actKeep     action = "keep"     // it has ended, or has no process: there is nothing to watch
	actTakeOver action = "takeover" // the keeper holds it; it runs, or ended meanwhile
	actAdopt    action = "adopt"    // it runs, but nobody holds anything of it: the keeper died too
	actConclude action = "conclude" // its exit is in the journal, and nobody holds anything of it
	actLost     action = "lost"     // it ended unseen
)

// found is what a worker finds out about a recorded container.
type found struct {
	sameBoot   bool
	held       bool // by the keeper
	alive      bool
	journalled bool
}

// decide chooses what to do.
func decide(r record.Record, f found) action {
	switch {
	case r.Stage == record.StageCreating:
		return actUndo
	case r.Stage == record.StageDeleting:
		return actDelete
	case f.sameBoot && f.held && r.PID != 0:
		return actTakeOver // also when it has exited: output may still come
	case r.Exit != nil, r.StartError != "":
		return actKeep
	case !f.sameBoot:
		return actLost
	case f.journalled:
		return actConclude
	case f.alive:
		return actAdopt
	}
	return actLost
}

// recoverGrace bounds how long the others wait for what is undone, or whose removal is finished. Processes that hang in the kernel can
// take for ever; then it goes on in the background.
const recoverGrace = 2 * time.Second

// Recovery goes on where the last worker was stopped.
type Recovery struct{ cfg Config }

// Holder holds what must outlive this worker; see life.Holder.
type Holder interface {
	Hold(ctx context.Context, h hold.Holding, fds ...protocol.FD) error
	Release(ctx context.Context, key string) error
}

// Config is what it needs.
type Config struct {
	Ctx       context.Context // ends with the worker
	BootID    string
	KeeperPID int
	Table     *table.Table
	Life      *life.Life
	Records   *record.Store
	Journal   *journal.Journal
	Keeper    Holder
	// Gate is the file that is there as long as a container's first process may wait to be let go; see Engine.
	Gate func(rec record.Record) string
	Log  *slog.Logger
}

// New returns a Recovery.
func New(cfg Config) *Recovery { return &Recovery{cfg: cfg} }

// Run goes on with all that is recorded, and with all that the keeper has held. What fails is logged, and spoils nobody else.
func (rc *Recovery) Run(held map[string]*Held) {
	rc.killExecs(held)
	recs, errs := rc.cfg.Records.Load()
	for _, err := range errs {
		rc.cfg.Log.Error("a container's record cannot be read; it is left as it is", "error", err)
	}
	var slow sync.WaitGroup
	for _, r := range recs {
		h := held[hold.ContainerKey(r.ID)]
		delete(held, hold.ContainerKey(r.ID))
		if err := rc.recoverOne(r, h, &slow); err != nil {
			rc.cfg.Log.Error("container not recovered", "container", r.ID, "stage", r.Stage, "error", err)
		}
		if h != nil {
			h.close()
		}
	}
	for key, h := range held { // of no container: a step of Delete was cut short
		h.close()
		if err := rc.cfg.Keeper.Release(rc.cfg.Ctx, key); err != nil {
			rc.cfg.Log.Error("a holding of no container stays", "key", key, "error", err)
		}
	}
	done := make(chan struct{})
	go func() { slow.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(recoverGrace):
		rc.cfg.Log.Warn("what an earlier worker has left is still being removed; all else is served")
	}
}

// remove takes away what is left of a container, while calls for it wait and all others are served.
func (rc *Recovery) remove(c *table.Container, slow *sync.WaitGroup, f func() error) {
	release, err := c.Take(rc.cfg.Ctx) // nobody else has seen it yet
	if err != nil {
		return // the worker ends
	}
	slow.Go(func() {
		defer release()
		if err := f(); err != nil && rc.cfg.Ctx.Err() == nil {
			rc.cfg.Log.Error("container not recovered", "container", c.ID, "error", err)
		}
	})
}

// recoverOne goes on with one container. What may take long is done in the background, and counted in slow.
func (rc *Recovery) recoverOne(r record.Record, h *Held, slow *sync.WaitGroup) error {
	e, journalled, err := rc.cfg.Journal.Get(r.PID, r.StartTime)
	if err != nil {
		rc.cfg.Log.Error("an exit cannot be read from the journal", "container", r.ID, "error", err)
	}
	same := r.BootID == rc.cfg.BootID
	act := decide(r, found{sameBoot: same, held: h != nil, journalled: journalled, alive: same && r.PID != 0 && proc.Alive(r.PID, r.StartTime)})
	rc.cfg.Log.Info("container recovered", "container", r.ID, "stage", r.Stage, "action", act)
	if act == actUndo {
		if h != nil { // the record was written before there was a process
			r.PID, r.StartTime = h.PID, h.StartTime
		}
		c := rc.cfg.Table.AddUnborn(r.ID) // Create waits for its end
		rc.remove(c, slow, func() error {
			defer rc.cfg.Table.Forget(c)
			return rc.cfg.Life.Undo(rc.cfg.Ctx, r)
		})
		return nil
	}
	c := rc.cfg.Table.Add(r)
	rc.undoUpdate(c, r)
	if r.Exit != nil {
		c.SetEnded()
		c.SetExited()
		rc.cfg.Life.GroupEnded(r)
	}
	switch act {
	case actDelete:
		rc.remove(c, slow, func() error { return rc.cfg.Life.Delete(rc.cfg.Ctx, c) })
	case actTakeOver:
		return rc.takeOver(c, h, e, journalled)
	case actAdopt:
		return rc.adopt(c)
	case actConclude, actLost:
		c.SetEnded()
		slow.Go(func() { rc.cfg.Life.Conclude(rc.cfg.Ctx, c, e, journalled) })
	}
	return nil
}

// takeOver goes on with a container that the keeper holds.
func (rc *Recovery) takeOver(c *table.Container, h *Held, e journal.Exit, journalled bool) error {
	rc.gateAgain(c)
	rec := c.Record()
	var pidfd *proc.FD
	if fd, ok := h.fds[hold.PIDFD]; ok {
		pidfd = proc.FDFromRaw(int(fd), rec.PID)
		delete(h.fds, hold.PIDFD)
	}
	files := map[string]*os.File{}
	for _, name := range slices.Collect(maps.Keys(h.fds)) {
		files[name] = h.file(name)
	}
	// The process has ended, and only its output was not drained, or its end not recorded. The keeper does not tell of an end that the
	// last worker has journalled and reaped.
	if rec.Exit == nil && (pidfd == nil || journalled) {
		if pidfd != nil {
			pidfd.Close()
		}
		rc.cfg.Life.ResumeStdio(c, files)
		c.SetEnded()
		go func() {
			rc.cfg.Life.Conclude(rc.cfg.Ctx, c, e, journalled)
			rc.cfg.Life.DropExit(rec.PID, rec.StartTime) // where the keeper has seen it as well
		}()
		return nil
	}
	parent := rc.cfg.KeeperPID
	if rec.Adopted {
		parent = life.Stranger
	}
	rc.cfg.Life.Resume(c, pidfd, files, parent)
	return nil
}

// adopt goes on, as far as that is possible, with a container whose keeper died too. Pipes can be opened again
// through the process that has them, unless it has put something else in their place; a pty was hung up.
func (rc *Recovery) adopt(c *table.Container) error {
	rc.gateAgain(c)
	r := c.Record()
	pidfd, err := proc.OpenFD(r.PID)
	if err != nil {
		return err
	}
	if !proc.Alive(r.PID, r.StartTime) { // asked again now that the pid is pinned
		pidfd.Close()
		c.SetEnded()
		rc.cfg.Life.Conclude(rc.cfg.Ctx, c, journal.Exit{}, false)
		return nil
	}
	h := hold.Holding{Key: hold.ContainerKey(r.ID), PID: r.PID, StartTime: r.StartTime, Names: []string{hold.PIDFD}}
	raw, err := pidfd.Dup()
	if err != nil {
		return err
	}
	fds := []protocol.FD{protocol.FD(raw)}
	defer func() { protocol.CloseFDs(fds) }()
	files := map[string]*os.File{}
	pipes := map[string]struct{ fd, flags int }{
		hold.Stdin: {0, unix.O_WRONLY}, hold.Stdout: {1, unix.O_RDONLY}, hold.Stderr: {2, unix.O_RDONLY}}
	if r.Kind != "" {
		pipes = nil
	}
	for name, pipe := range pipes {
		fd, err := reopenPipe(r, name, pipe.fd, pipe.flags)
		if err != nil {
			rc.cfg.Log.Warn("a stream of an adopted container is lost", "container", r.ID, "stream", name, "error", err)
			continue
		}
		dup, err := fd.Dup()
		if err != nil {
			fd.Close()
			return err
		}
		files[name] = fd.Pollable(name)
		h.Names, fds = append(h.Names, name), append(fds, dup)
	}
	if err := rc.cfg.Keeper.Hold(rc.cfg.Ctx, h, fds...); err != nil {
		return err
	}
	if err := rc.cfg.Table.Amend(c, func(r *record.Record) { r.Adopted = true }); err != nil {
		return err
	}
	rc.cfg.Life.Resume(c, pidfd, files, life.Stranger)
	return nil
}

// reopenPipe opens the other end of a pipe that a process has as descriptor fd.
func reopenPipe(r record.Record, name string, fd, flags int) (protocol.FD, error) {
	inode, ok := r.Pipes[name]
	if !ok {
		return -1, errors.New("it was no pipe")
	}
	// What the process has there now is looked at before it is opened: it may be a device by this time.
	path := fmt.Sprintf("/proc/%d/fd/%d", r.PID, fd)
	found, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(found)
	var st unix.Stat_t
	if err := unix.Fstat(found, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO || st.Ino != inode {
		return -1, fmt.Errorf("%s is not the pipe that the container was given", path)
	}
	raw, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", found), flags|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return protocol.FD(raw), nil
}

// gateAgain undoes a Start that was cut short before the init was let go: the container is then Created still.
func (rc *Recovery) gateAgain(c *table.Container) {
	rec := c.Record()
	if rec.Stage != record.StageRunning || rec.Exit != nil {
		return
	}
	gate := rc.cfg.Gate(rec)
	if gate != "" {
		if _, err := os.Lstat(gate); err != nil {
			return // it was let go
		}
	}
	stat, err := proc.ReadStat(rec.PID)
	if err != nil || stat.StartTime != rec.StartTime || stat.Dead() {
		return
	}
	if stat.Executed() {
		if gate != "" {
			os.Remove(gate) // it was let go; only the last step is missing
		}
		return
	}
	err = rc.cfg.Table.Amend(c, func(r *record.Record) { r.Stage, r.StartedAt = record.StageCreated, time.Time{} })
	if err != nil {
		rc.cfg.Log.Error("container record", "container", c.ID, "error", err)
	}
}

// killExecs ends the execs of the last worker: their callers were told that they are lost.
func (rc *Recovery) killExecs(held map[string]*Held) {
	for key, h := range held {
		if !strings.HasPrefix(key, hold.ExecPrefix) {
			continue
		}
		delete(held, key)
		if sock, ok := h.fds[hold.ExecSocket]; ok {
			if fd, err := protocol.ReceiveFD(sock); err == nil { // else it ended, or was not born yet and will not be
				if err := unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
					rc.cfg.Log.Error("an exec of the last worker goes on", "key", key, "error", err)
				}
				fd.Close()
			}
		}
		h.close()
		if err := rc.cfg.Keeper.Release(rc.cfg.Ctx, key); err != nil {
			rc.cfg.Log.Error("an exec of the last worker stays held", "key", key, "error", err)
		}
	}
}

// undoUpdate restores what the last worker was killed in the middle of changing.
func (rc *Recovery) undoUpdate(c *table.Container, rec record.Record) {
	if rec.Updating == nil {
		return
	}
	if err := rec.Group().Restore(rc.cfg.Ctx, rec.Updating); err != nil {
		rc.cfg.Log.Error("resources of a container are half updated", "container", c.ID, "error", err)
		return
	}
	if err := rc.cfg.Table.Amend(c, func(r *record.Record) { r.Updating = nil }); err != nil {
		rc.cfg.Log.Error("container record", "container", c.ID, "error", err)
	}
}
