//go:build cgo

package worker

import (
	"context"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/hold"
	"monopod.dev/monopod/internal/executor/journal"
	"monopod.dev/monopod/internal/executor/protocol"
)

// Keys of holdings: a container's, and an exec's.
const (
	containerPrefix = "container/"
	execPrefix      = "exec/"
)

func containerKey(id string) string { return containerPrefix + id }

// heldSet is what the keeper held under one key.
type heldSet struct {
	hold.Holding
	fds map[string]protocol.FD
}

func newHeldSet(h hold.Holding, fds []protocol.FD) *heldSet {
	s := &heldSet{Holding: h, fds: map[string]protocol.FD{}}
	for i, fd := range fds {
		if i < len(h.Names) {
			s.fds[h.Names[i]] = fd
		} else {
			fd.Close()
		}
	}
	return s
}

// file takes a descriptor out as a non-blocking file; nil when it is not there.
func (s *heldSet) file(name string) *os.File {
	fd, ok := s.fds[name]
	if !ok {
		return nil
	}
	delete(s.fds, name)
	return pollable(fd, name)
}

// close closes what has not been taken out.
func (s *heldSet) close() {
	for _, fd := range s.fds {
		fd.Close()
	}
	s.fds = nil
}

// pollable makes a file for which Go's poller waits.
func pollable(fd protocol.FD, name string) *os.File {
	unix.SetNonblock(int(fd), true) // where it cannot be, reads and writes do not block for long either
	return fd.File(name)
}

// exitBoard brings the exits that the keeper saw to those who wait for them.
type exitBoard struct {
	mu    sync.Mutex
	known map[procKey]journal.Exit
	wait  map[procKey]chan struct{}
}

type procKey struct {
	pid       int
	startTime uint64
}

func newExitBoard() *exitBoard {
	return &exitBoard{known: map[procKey]journal.Exit{}, wait: map[procKey]chan struct{}{}}
}

func (b *exitBoard) put(e journal.Exit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := procKey{e.PID, e.StartTime}
	b.known[k] = e
	if ch := b.wait[k]; ch != nil {
		close(ch)
		delete(b.wait, k)
	}
}

// take waits for the exit of a process, and forgets it.
func (b *exitBoard) take(ctx context.Context, k procKey) (journal.Exit, error) {
	for {
		b.mu.Lock()
		e, ok := b.known[k]
		if ok {
			delete(b.known, k)
			b.mu.Unlock()
			return e, nil
		}
		ch := b.wait[k]
		if ch == nil {
			ch = make(chan struct{})
			b.wait[k] = ch
		}
		b.mu.Unlock()
		select {
		case <-ch:
		case <-ctx.Done():
			return journal.Exit{}, ctx.Err()
		}
	}
}

// drop forgets the exit of a process that nobody waits for.
func (b *exitBoard) drop(k procKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.known, k)
}
