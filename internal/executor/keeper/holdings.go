package keeper

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/journal"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/host/proc"
)

// holding is what the keeper keeps for the worker under one key.
type holding struct {
	pid       int
	startTime uint64
	fds       map[string]protocol.FD
	exit      *journal.Exit
}

// holdings is all that the keeper keeps. Methods are safe for concurrent use.
type holdings struct {
	log     *slog.Logger
	journal *journal.Journal

	mu     sync.Mutex
	byKey  map[string]*holding
	byProc map[procKey]*holding
	unsent []journal.Exit // exits that the present worker has not been told of
	wake   chan struct{}  // buffered 1: unsent has grown
}

type procKey struct {
	pid       int
	startTime uint64
}

func newHoldings(j *journal.Journal, log *slog.Logger) *holdings {
	return &holdings{log: log, journal: j, byKey: map[string]*holding{}, byProc: map[procKey]*holding{}, wake: make(chan struct{}, 1)}
}

// hold adds descriptors, which it takes over.
func (h *holdings) hold(req hold.Holding, fds []protocol.FD) error {
	if len(fds) != len(req.Names) {
		protocol.CloseFDs(fds)
		return fmt.Errorf("%w: hold %s: %d names, %d descriptors", errdefs.ErrInvalidArgument, req.Key, len(req.Names), len(fds))
	}
	if err := h.reserve(req); err != nil {
		protocol.CloseFDs(fds)
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.byKey[req.Key]
	if k == nil {
		k = &holding{fds: map[string]protocol.FD{}}
		h.byKey[req.Key] = k
	}
	for i, name := range req.Names {
		if old, ok := k.fds[name]; ok {
			old.Close()
		}
		k.fds[name] = fds[i]
	}
	if req.PID != 0 {
		k.pid, k.startTime = req.PID, req.StartTime
		h.byProc[procKey{req.PID, req.StartTime}] = k
	}
	return nil
}

// restore takes over what another keeper has held, with the exits that it saw.
func (h *holdings) restore(all []hold.Bequest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range all {
		k := &holding{pid: b.PID, startTime: b.StartTime, fds: map[string]protocol.FD{}, exit: b.Exit}
		for i, name := range b.Names {
			k.fds[name] = b.FDs[i]
		}
		h.byKey[b.Key] = k
		if b.PID != 0 {
			h.byProc[procKey{b.PID, b.StartTime}] = k
		}
	}
}

// reserve takes the room for a process's exit. The process waits for the answer before it runs, so that it is not let go without. One that
// runs already, since before there was such room or under a keeper that has died, is held in any case.
func (h *holdings) reserve(req hold.Holding) error {
	if req.PID == 0 {
		return nil
	}
	err := h.journal.Reserve(req.PID, req.StartTime)
	if err == nil {
		return nil
	}
	if stat, serr := proc.ReadStat(req.PID); serr == nil && !stat.Executed() {
		return err
	}
	h.log.Warn("a process is held whose exit may be lost if the disk stays full", "pid", req.PID, "error", err)
	return nil
}

func (h *holdings) drop(req hold.DropRequest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.byKey[req.Key]
	if k == nil {
		return
	}
	for _, name := range req.Names {
		if fd, ok := k.fds[name]; ok {
			fd.Close()
			delete(k.fds, name)
		}
	}
}

func (h *holdings) release(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.byKey[key]
	if k == nil {
		return
	}
	for _, fd := range k.fds {
		fd.Close()
	}
	delete(h.byKey, key)
	delete(h.byProc, procKey{k.pid, k.startTime})
}

// running counts the processes that are held and whose end is not known.
func (h *holdings) running() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range h.byKey {
		if k.exit == nil && k.pid != 0 && proc.Alive(k.pid, k.startTime) {
			n++
		}
	}
	return n
}

// ended records how a child of the keeper ended that is a zombie still. A process that is not held is nobody's: an
// orphan out of some container, or one half made by a worker that died.
func (h *holdings) ended(st proc.Status) {
	stat, err := proc.ReadStat(st.PID)
	if err != nil {
		h.log.Error("a zombie cannot be identified", "pid", st.PID, "error", err)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.byProc[procKey{st.PID, stat.StartTime}]
	if k == nil {
		return
	}
	e := journal.Exit{PID: st.PID, StartTime: stat.StartTime, Code: st.Code, At: time.Now().UTC(), Executed: stat.Executed()}
	if stored, err := h.journal.Put(e); err == nil {
		e = stored
	} else {
		// The keeper's memory is the second copy: the exit is lost only if the keeper dies too, and is then said to be
		// unknown. Not to reap would gain nothing.
		h.log.Error("exit not journalled", "error", err)
	}
	k.exit = &e
	h.unsent = append(h.unsent, e)
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// watch serves hold.MethodWatch. retired is hold.Note's.
func (h *holdings) watch(ctx context.Context, call *protocol.Call, retired int) error {
	notes := h.snapshot()
	for _, n := range notes {
		err := call.Note(n.note, n.fds...)
		protocol.CloseFDs(n.fds)
		if err != nil {
			return err
		}
	}
	if err := call.Note(hold.Note{Synced: true, Retired: retired}); err != nil {
		return err
	}
	for {
		h.mu.Lock()
		exits := h.unsent
		h.unsent = nil
		h.mu.Unlock()
		for _, e := range exits {
			if err := call.Note(hold.Note{Exit: &e}); err != nil {
				return err
			}
		}
		select {
		case <-h.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

type noteWithFDs struct {
	note hold.Note
	fds  []protocol.FD
}

// snapshot tells of all holdings, with duplicates of their descriptors, and of all exits; from here on only new exits
// are unsent.
func (h *holdings) snapshot() (notes []noteWithFDs) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unsent = nil
	for key, k := range h.byKey {
		n := noteWithFDs{note: hold.Note{Holding: &hold.Holding{Key: key, PID: k.pid, StartTime: k.startTime}}}
		for name, fd := range k.fds {
			dup, err := fd.Dup()
			if err != nil {
				h.log.Error("a held descriptor cannot be passed on", "key", key, "name", name, "error", err)
				continue
			}
			n.note.Holding.Names = append(n.note.Holding.Names, name)
			n.fds = append(n.fds, dup)
		}
		notes = append(notes, n)
		if k.exit != nil {
			notes = append(notes, noteWithFDs{note: hold.Note{Exit: k.exit}})
		}
	}
	return notes
}
