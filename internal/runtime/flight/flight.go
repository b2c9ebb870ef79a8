// Package flight orders the operations on one object and lets a repeated request join the one under way.
//
// A client whose call timed out calls again while the first attempt still works. Colliding with it ("name is reserved") helps
// nobody: the second call waits for the first one's result.
package flight

import (
	"context"
	"sync"
	"time"
)

// Group runs operations by key. Its zero value is usable; all methods are safe for concurrent use.
type Group struct {
	mu      sync.Mutex
	running map[string]*call
	queues  map[string]*queue
}

type call struct {
	variant string
	done    chan struct{}
	id      string
	err     error
}

type queue struct {
	slot  chan struct{} // holds one token while somebody works
	users int
}

// Join runs f under the key, or waits for the run of the same key and variant that is under way and returns its result. While one
// of another variant is under way, which is a request for something else under the same name, it waits for its end and then
// runs f. f's context does not end with the first caller's: the work of a client that has gone is finished, or undone, by
// itself, within the bound.
func (g *Group) Join(ctx context.Context, key, variant string, bound time.Duration, f func(context.Context) (string, error)) (string, error) {
	for {
		c := g.lead(ctx, key, variant, bound, f)
		select {
		case <-c.done:
			if c.variant == variant {
				return c.id, c.err
			}
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// lead returns the run under the key that is under way, after starting it if there was none.
func (g *Group) lead(ctx context.Context, key, variant string, bound time.Duration, f func(context.Context) (string, error)) *call {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c, ok := g.running[key]; ok {
		return c
	}
	c := &call{variant: variant, done: make(chan struct{})}
	if g.running == nil {
		g.running = map[string]*call{}
	}
	g.running[key] = c
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound)
	go func() {
		defer cancel()
		c.id, c.err = f(work)
		g.mu.Lock()
		delete(g.running, key)
		g.mu.Unlock()
		close(c.done)
	}()
	return c
}

// One runs f when no other One of the same key runs.
func (g *Group) One(ctx context.Context, key string, f func() error) error {
	g.mu.Lock()
	q, ok := g.queues[key]
	if !ok {
		q = &queue{slot: make(chan struct{}, 1)}
		if g.queues == nil {
			g.queues = map[string]*queue{}
		}
		g.queues[key] = q
	}
	q.users++
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if q.users--; q.users == 0 {
			delete(g.queues, key)
		}
	}()
	select {
	case q.slot <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-q.slot }()
	return f()
}
