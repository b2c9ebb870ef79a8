//go:build cgo

package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/crilog"
	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/journal"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/worker/record"
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

// recover goes on where the last worker was stopped. What fails is logged, and spoils nobody else.
func (w *Worker) recover(held map[string]*heldSet) {
	w.killExecs(held)
	w.starters.commands.removeConsoles()
	recs, errs := w.store.Load()
	for _, err := range errs {
		w.log.Error("a container's record cannot be read; it is left as it is", "error", err)
	}
	var slow sync.WaitGroup
	for _, r := range recs {
		h := held[containerKey(r.ID)]
		delete(held, containerKey(r.ID))
		if err := w.recoverOne(r, h, &slow); err != nil {
			w.log.Error("container not recovered", "container", r.ID, "stage", r.Stage, "error", err)
		}
		if h != nil {
			h.close()
		}
	}
	for key, h := range held { // of no container: a step of Delete was cut short
		h.close()
		if err := w.keeper.Release(w.ctx, key); err != nil {
			w.log.Error("a holding of no container stays", "key", key, "error", err)
		}
	}
	done := make(chan struct{})
	go func() { slow.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(recoverGrace):
		w.log.Warn("what an earlier worker has left is still being removed; all else is served")
	}
}

// remove takes away what is left of a container, while calls for it wait and all others are served.
func (w *Worker) remove(c *container, slow *sync.WaitGroup, f func() error) {
	<-c.op // nobody else has seen it yet
	slow.Go(func() {
		defer func() { c.op <- struct{}{} }()
		if err := f(); err != nil && w.ctx.Err() == nil {
			w.log.Error("container not recovered", "container", c.id, "error", err)
		}
	})
}

// recoverOne goes on with one container. What may take long is done in the background, and counted in slow.
func (w *Worker) recoverOne(r record.Record, h *heldSet, slow *sync.WaitGroup) error {
	e, journalled, err := w.journal.Get(r.PID, r.StartTime)
	if err != nil {
		w.log.Error("an exit cannot be read from the journal", "container", r.ID, "error", err)
	}
	same := r.BootID == w.bootID
	act := decide(r, found{sameBoot: same, held: h != nil, journalled: journalled, alive: same && r.PID != 0 && proc.Alive(r.PID, r.StartTime)})
	w.log.Info("container recovered", "container", r.ID, "stage", r.Stage, "action", act)
	if act == actUndo {
		if h != nil { // the record was written before there was a process
			r.PID, r.StartTime = h.PID, h.StartTime
		}
		c := newContainer(r.ID) // one that does not exist: Create waits for its end
		w.mu.Lock()
		w.containers[r.ID] = c
		w.mu.Unlock()
		w.remove(c, slow, func() error {
			defer w.forget(c)
			return w.undoCreate(w.ctx, r)
		})
		return nil
	}
	c := newContainer(r.ID)
	c.rec = r
	w.undoUpdate(c)
	w.mu.Lock()
	w.containers[r.ID] = c
	w.mu.Unlock()
	if r.Exit != nil {
		close(c.ended)
		close(c.exited)
		w.groupEnded(r)
	}
	switch act {
	case actDelete:
		w.remove(c, slow, func() error { return w.deleteEnded(w.ctx, c) })
	case actTakeOver:
		return w.takeOver(c, h, e, journalled)
	case actAdopt:
		return w.adopt(c)
	case actConclude, actLost:
		close(c.ended)
		slow.Go(func() { w.conclude(w.ctx, c, e, journalled) })
	}
	return nil
}

// takeOver goes on with a container that the keeper holds.
func (w *Worker) takeOver(c *container, h *heldSet, e journal.Exit, journalled bool) error {
	w.gateAgain(c)
	var pidfd *proc.FD
	if fd, ok := h.fds[hold.PIDFD]; ok {
		pidfd = proc.FDFromRaw(int(fd), c.rec.PID)
		delete(h.fds, hold.PIDFD)
	}
	files := map[string]*os.File{}
	for _, name := range slices.Collect(maps.Keys(h.fds)) {
		files[name] = h.file(name)
	}
	// The process has ended, and only its output was not drained, or its end not recorded. The keeper does not tell of an end that the
	// last worker has journalled and reaped.
	if c.rec.Exit == nil && (pidfd == nil || journalled) {
		if pidfd != nil {
			pidfd.Close()
		}
		w.resumeStdio(c, files)
		close(c.ended)
		k := procKey{c.rec.PID, c.rec.StartTime}
		go func() {
			w.conclude(w.ctx, c, e, journalled)
			w.exits.drop(k) // where the keeper has seen it as well
		}()
		return nil
	}
	parent := w.keeperPID
	if c.rec.Adopted {
		parent = stranger
	}
	w.resume(c, pidfd, files, parent)
	return nil
}

// stranger stands for a parent that is neither this process nor its keeper.
const stranger = 0

// adopt goes on, as far as that is possible, with a container whose keeper died too. Pipes can be opened again
// through the process that has them, unless it has put something else in their place; a pty was hung up.
func (w *Worker) adopt(c *container) error {
	w.gateAgain(c)
	r := c.rec
	pidfd, err := proc.OpenFD(r.PID)
	if err != nil {
		return err
	}
	if !proc.Alive(r.PID, r.StartTime) { // asked again now that the pid is pinned
		pidfd.Close()
		close(c.ended)
		w.conclude(w.ctx, c, journal.Exit{}, false)
		return nil
	}
	h := hold.Holding{Key: containerKey(r.ID), PID: r.PID, StartTime: r.StartTime, Names: []string{hold.PIDFD}}
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
			w.log.Warn("a stream of an adopted container is lost", "container", r.ID, "stream", name, "error", err)
			continue
		}
		dup, err := fd.Dup()
		if err != nil {
			fd.Close()
			return err
		}
		files[name] = pollable(fd, name)
		h.Names, fds = append(h.Names, name), append(fds, dup)
	}
	if err := w.keeper.Hold(w.ctx, h, fds...); err != nil {
		return err
	}
	c.rec.Adopted = true
	if err := w.store.Put(c.rec); err != nil {
		return err
	}
	w.resume(c, pidfd, files, stranger)
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

// resume moves the container's stdio and waits for its end again.
func (w *Worker) resume(c *container, pidfd *proc.FD, files map[string]*os.File, parent int) {
	w.resumeStdio(c, files)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rec.Exit == nil {
		c.pidfd = pidfd
		go w.monitor(w.ctx, c, pidfd, parent)
		return
	}
	if pidfd != nil {
		pidfd.Close()
	}
	go w.releaseDrained(w.ctx, c)
}

func (w *Worker) resumeStdio(c *container, files map[string]*os.File) {
	var log *crilog.File
	if c.rec.LogPath != "" {
		var err error
		if log, err = crilog.OpenAgain(c.rec.LogPath, w.rotation(c.rec), c.rec.LogFixed); err != nil {
			// The container must go on, and its output must be taken from it: only the log is lost, until it is reopened.
			w.log.Error("a container's log cannot be continued", "container", c.id, "error", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.io = w.newStdio(c, c.rec, log, files)
}

// gateAgain undoes a Start that was cut short before the init was let go: the container is then Created still.
func (w *Worker) gateAgain(c *container) {
	if c.rec.Stage != record.StageRunning || c.rec.Exit != nil {
		return
	}
	starter := w.starters.of(c.rec)
	if !starter.waits(c.rec) {
		return
	}
	stat, err := proc.ReadStat(c.rec.PID)
	if err != nil || stat.StartTime != c.rec.StartTime || stat.Dead() {
		return
	}
	if stat.Executed() {
		starter.released(c.rec) // it was let go; only the last step is missing
		return
	}
	c.rec.Stage, c.rec.StartedAt = record.StageCreated, time.Time{}
	if err := w.store.Put(c.rec); err != nil {
		w.log.Error("container record", "container", c.id, "error", err)
	}
}

// killExecs ends the execs of the last worker: their callers were told that they are lost.
func (w *Worker) killExecs(held map[string]*heldSet) {
	for key, h := range held {
		if !strings.HasPrefix(key, execPrefix) {
			continue
		}
		delete(held, key)
		if sock, ok := h.fds[hold.ExecSocket]; ok {
			if fd, err := receiveFD(sock); err == nil { // else it ended, or was not born yet and will not be
				if err := unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
					w.log.Error("an exec of the last worker goes on", "key", key, "error", err)
				}
				fd.Close()
			}
		}
		h.close()
		if err := w.keeper.Release(w.ctx, key); err != nil {
			w.log.Error("an exec of the last worker stays held", "key", key, "error", err)
		}
	}
}

// releaseDrained lets go of what the keeper holds of an exited container, when its output has ended.
func (w *Worker) releaseDrained(ctx context.Context, c *container) {
	c.mu.Lock()
	io := c.io
	c.mu.Unlock()
	if io != nil {
		select {
		case <-io.Drained():
		case <-ctx.Done():
			return
		}
	}
	if err := w.keeper.Release(ctx, containerKey(c.id)); err != nil && ctx.Err() == nil {
		w.log.Warn("the keeper still holds an ended container", "container", c.id, "error", err)
	}
}
