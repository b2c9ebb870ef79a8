package devices

import (
	"sync"
	"time"
)

// writeBehind is how long a record may wait for its way to the disk; who needs it there sooner writes it himself. A pod's sandbox is begun in that
// time: with few processors all of them can be in a write, of the pod's first status too, and that takes Go's scheduler milliseconds to see.
const writeBehind = 3 * time.Millisecond

// behind has things done a moment later, in the background, until it is closed. The zero value is open.
type behind struct {
	mu      sync.Mutex
	closed  bool
	pending sync.WaitGroup
}

// later has something done in the background, or not at all: when close was called.
func (b *behind) later(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.pending.Add(1)
	time.AfterFunc(writeBehind, func() {
		defer b.pending.Done()
		f()
	})
	return true
}

// close waits for all that was to be done later. There is no more of it.
func (b *behind) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.pending.Wait()
}
