// Package keyed is a lock for each key.
package keyed

import (
	"context"
	"sync"
)

// Lock is a mutual-exclusion lock for each key of type K. It keeps nothing of a key that nobody has or waits for. Those who wait for a key get
// it in the order in which they came. Its zero value is usable; all methods are safe for concurrent use.
type Lock[K comparable] struct {
	mu   sync.Mutex
	keys map[K]*slot
}

type slot struct {
	taken chan struct{} // holds one value while somebody has the key
	users int           // who has it, and who wait; guarded by Lock.mu
}

// Lock waits for the key, or for the end of ctx, whose cause it returns then. unlock gives the key back; it is called once.
func (l *Lock[K]) Lock(ctx context.Context, key K) (unlock func(), err error) {
	s := l.enter(key)
	select {
	case s.taken <- struct{}{}:
		return func() { <-s.taken; l.leave(key, s) }, nil
	case <-ctx.Done():
		l.leave(key, s)
		return nil, context.Cause(ctx)
	}
}

// Wait is Lock for one who cannot go without.
func (l *Lock[K]) Wait(key K) (unlock func()) {
	s := l.enter(key)
	s.taken <- struct{}{}
	return func() { <-s.taken; l.leave(key, s) }
}

// Do runs f with the key. The error is that of f, or the cause of the end of ctx.
func (l *Lock[K]) Do(ctx context.Context, key K, f func() error) error {
	unlock, err := l.Lock(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()
	return f()
}

func (l *Lock[K]) enter(key K) *slot {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.keys[key]
	if s == nil {
		if l.keys == nil {
			l.keys = map[K]*slot{}
		}
		s = &slot{taken: make(chan struct{}, 1)}
		l.keys[key] = s
	}
	s.users++
	return s
}

func (l *Lock[K]) leave(key K, s *slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(l.keys, key)
	}
}
