package unpack

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// patience is how long a download may take for pace bytes and keep its turn.
	patience = 20 * time.Second
	// pace is how many bytes are worth a turn.
	pace = 1 << 20
)

// A turn is a layer's place among those that are fetched and unpacked at a time. It is for the work that is done: whoever waits for a registry that sends nothing, or
// drop by drop, takes nothing of this machine but a connection, and lends its turn to others until it moves again. Else a registry, which whoever may make a pod
// chooses, would keep the node from all other images.
type turn struct {
	of       *semaphore.Weighted
	patience time.Duration

	mu    sync.Mutex
	held  bool
	timer *time.Timer // lends it; nil: it is kept
	since int64       // what had come when it was counted last
}

// take waits for a turn.
func take(ctx context.Context, of *semaphore.Weighted, patience time.Duration) (*turn, error) {
	if err := of.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	return &turn{of: of, patience: patience, held: true}, nil
}

// watch begins to look at how fast a download is that has so many bytes.
func (t *turn) watch(have int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil { // of an earlier attempt
		t.timer.Stop()
	}
	t.since = have
	t.timer = time.AfterFunc(t.patience, t.lend)
}

// lend gives the turn to others.
func (t *turn) lend() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held {
		t.held = false
		t.of.Release(1)
	}
}

// moved is told what has come. Who has lent its turn waits here for another one, or for the end of ctx.
func (t *turn) moved(ctx context.Context, have int64) {
	t.mu.Lock()
	counts := t.timer != nil && have-t.since >= pace
	t.mu.Unlock()
	if counts {
		t.again(ctx, have)
	}
}

// again takes the turn back where it was lent, and counts from now on.
func (t *turn) again(ctx context.Context, have int64) {
	t.mu.Lock()
	held := t.held
	t.timer.Stop()
	t.mu.Unlock()
	if !held && t.of.Acquire(ctx, 1) != nil {
		return // ctx has ended, and with it the download
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if held && !t.held { // it was lent just now
		return
	}
	t.held, t.since = true, have
	t.timer.Reset(t.patience)
}

// whole is told that all has come: what is left to do needs a turn, however long it takes.
func (t *turn) whole(ctx context.Context, have int64) {
	t.again(ctx, have)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer.Stop()
}

// end gives the turn back. Nobody calls anything of it at the same time, or afterwards.
func (t *turn) end() {
	if t.timer != nil {
		t.timer.Stop()
	}
	t.lend()
}
