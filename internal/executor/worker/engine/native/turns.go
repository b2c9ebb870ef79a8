//go:build cgo

package native

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// turns lets the starts of commands go on in the order in which they came, a few at a time. Without it the kernel runs all of them at once,
// and of two hundred some take five times as long as most (docs/SPEED.md).
//
// A start that is stuck, in a file that hangs for example, ends its turn after a while and goes on beside the others, and for a longer while
// its container's starts take no turns. So what the containers of a node can take from each other is a small part of the turns.
type turns struct {
	places            *semaphore.Weighted
	patience, penance time.Duration
}

const (
	// turnsPerCPU lets a start that waits for the kernel leave its processor to another one.
	turnsPerCPU = 8
	// turnPatience is how long a turn lasts at most. A start takes a millisecond or two of a processor, of which its container may have a
	// small share only.
	turnPatience = 250 * time.Millisecond
	// turnPenance makes that one fortieth of the time that a container can keep one place from the others.
	turnPenance = 40 * turnPatience
)

func newTurns() *turns {
	return &turns{places: semaphore.NewWeighted(int64(turnsPerCPU * runtime.GOMAXPROCS(0))), patience: turnPatience, penance: turnPenance}
}

// lateness is what turns know of a container.
type lateness struct{ until atomic.Pointer[time.Time] } // nil: its starts were in time

// take waits for the turn of a start, and returns what ends it.
func (t *turns) take(ctx context.Context, late *lateness) (end func(), err error) {
	if until := late.until.Load(); until != nil && time.Now().Before(*until) {
		return func() {}, nil
	}
	if err := t.places.Acquire(ctx, 1); err != nil {
		return nil, fmt.Errorf("wait for the turn to start: %w", context.Cause(ctx))
	}
	release := sync.OnceFunc(func() { t.places.Release(1) })
	overrun := time.AfterFunc(t.patience, func() {
		until := time.Now().Add(t.penance)
		late.until.Store(&until)
		release()
	})
	return func() {
		overrun.Stop()
		release()
	}, nil
}
