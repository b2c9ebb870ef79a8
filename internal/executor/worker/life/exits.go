//go:build cgo

package life

import (
	"context"
	"sync"

	"monopod.dev/monopod/internal/executor/journal"
)

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
