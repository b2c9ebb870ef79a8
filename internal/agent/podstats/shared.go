package podstats

import (
	"context"
	"sync"
	"time"
)

// shared is a value that takes some work to make, made once for all who ask at about the same time.
type shared[T any] struct {
	// fresh is how old a value may be that is handed out, patience how long making one may take.
	fresh, patience time.Duration
	make            func(ctx context.Context) (T, error)
	// base ends what is under way.
	base context.Context

	mu      sync.Mutex // guards what follows
	value   T
	has     bool
	made    time.Time
	pending *pending[T]
}

// pending is a value that is being made.
type pending[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// get returns a value that is fresh, which it makes or awaits. Who goes while it is made leaves it to the others.
func (s *shared[T]) get(ctx context.Context) (T, error) {
	s.mu.Lock()
	if s.has && time.Since(s.made) < s.fresh {
		defer s.mu.Unlock()
		return s.value, nil
	}
	p := s.pending
	if p == nil {
		p = &pending[T]{done: make(chan struct{})}
		s.pending = p
		go s.run(p)
	}
	s.mu.Unlock()
	select {
	case <-p.done:
		return p.value, p.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

func (s *shared[T]) run(p *pending[T]) {
	ctx, cancel := context.WithTimeout(s.base, s.patience)
	defer cancel()
	p.value, p.err = s.make(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending = nil; p.err == nil {
		s.value, s.has, s.made = p.value, true, time.Now()
	}
	close(p.done)
}
