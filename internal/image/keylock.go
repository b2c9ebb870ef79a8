package image

import (
	"context"
	"sync"
)

// keyedLock is a mutex for each key. It is what keeps two pulls from fetching one blob, or unpacking one layer, twice.
type keyedLock struct {
	mu    sync.Mutex
	locks map[string]*lockEntry
}

type lockEntry struct {
	held chan struct{} // holds one value while the lock is held
	refs int           // holder and waiters; guarded by keyedLock.mu
}

func newKeyedLock() *keyedLock { return &keyedLock{locks: map[string]*lockEntry{}} }

// Lock waits for the lock of key, or for the end of ctx.
func (k *keyedLock) Lock(ctx context.Context, key string) error {
	k.mu.Lock()
	e := k.locks[key]
	if e == nil {
		e = &lockEntry{held: make(chan struct{}, 1)}
		k.locks[key] = e
	}
	e.refs++
	k.mu.Unlock()
	select {
	case e.held <- struct{}{}:
		return nil
	case <-ctx.Done():
		k.drop(key, e)
		return context.Cause(ctx)
	}
}

// Unlock releases the lock of key, which the caller must hold.
func (k *keyedLock) Unlock(key string) {
	k.mu.Lock()
	e := k.locks[key]
	k.mu.Unlock()
	<-e.held
	k.drop(key, e)
}

func (k *keyedLock) drop(key string, e *lockEntry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e.refs--; e.refs == 0 {
		delete(k.locks, key)
	}
}
