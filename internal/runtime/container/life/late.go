package life

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/kit/wait"
)

// lateAgain is how long it takes until what could not be taken in is tried again.
const lateAgain = time.Second

// late holds what the executor has told and could not be stored, because the disk is full for instance, until it can be. The executor
// tells each fact once.
type late struct {
	mu     sync.Mutex
	states map[ids.ContainerID]protocol.ContainerState // the latest of each container
	wake   chan struct{}
}

func newLate() *late {
	return &late{states: map[ids.ContainerID]protocol.ContainerState{}, wake: make(chan struct{}, 1)}
}

func (l *late) add(s protocol.ContainerState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.states[s.ID] = s
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run takes in what is late until ctx ends.
func (l *late) run(ctx context.Context, takeIn func(protocol.ContainerState) error, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
		for l.try(takeIn, log) > 0 {
			if wait.For(ctx, lateAgain) != nil {
				return
			}
		}
	}
}

// try takes in what it can, and says how much is left.
func (l *late) try(takeIn func(protocol.ContainerState) error, log *slog.Logger) int {
	l.mu.Lock()
	states := maps.Clone(l.states)
	l.mu.Unlock()
	for id, s := range states {
		if err := takeIn(s); err != nil {
			log.Debug("an event of the executor can still not be taken in", "container", id, "error", err)
			continue
		}
		l.mu.Lock()
		if l.states[id] == s {
			delete(l.states, id)
		}
		l.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.states)
}
