// Package flight orders the operations on one object and lets a repeated request join the one under way.
//
// A client whose call timed out calls again while the first attempt still works. Colliding with it ("name is reserved") helps
// nobody: the second call waits for the first one's result.
package flight

import (
	"context"
	"errors"
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
	given   func(id string) // Work.GivenUp
	done    chan struct{}
	id      string
	err     error
	// waiting is how many wait for the result who want it, finished whether it is there; guarded by Group.mu.
	waiting  int
	finished bool
}

// Work is what Join runs.
type Work struct {
	// Key orders: of one key one runs at a time. Variant tells what the request asks for: those of the same one are joined.
	Key, Variant string
	// Bound is how long it may take.
	Bound time.Duration
	// Do does it, and returns the id of what it has made.
	Do func(context.Context) (id string, err error)
	// GivenUp is told the id when Do has succeeded and the last one that waited for it has gone without it. May be nil.
	GivenUp func(id string)
}

type queue struct {
	slot  chan struct{} // holds one token while somebody works
	users int
}

// Join does the work, or waits for the work of the same key and variant that is under way and returns its result. While some of
// another variant is under way, which is a request for something else under the same name, it waits for its end
// first. The work's context does not end with the first caller's: the work of a client that has gone is finished, or undone,
// by itself, within the bound.
func (g *Group) Join(ctx context.Context, w Work) (string, error) {
	for {
		c := g.lead(ctx, w)
		select {
		case <-c.done:
		case <-ctx.Done():
		}
		if c.variant == w.Variant {
			g.leave(ctx, c)
		}
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case c.variant == w.Variant:
			return c.id, c.err
		}
	}
}

// leave ends the wait of one who wants the result. The last one that leaves without it gives up what was made.
func (g *Group) leave(ctx context.Context, c *call) {
	g.mu.Lock()
	c.waiting--
	last := c.waiting == 0 && c.finished
	g.mu.Unlock()
	if last && ctx.Err() != nil {
		c.giveUp()
	}
}

func (c *call) giveUp() {
	if c.err == nil && c.given != nil {
		c.given(c.id)
	}
}

// lead returns the run under the key that is under way, after starting it if there was none.
func (g *Group) lead(ctx context.Context, w Work) *call {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c, ok := g.running[w.Key]; ok {
		if c.variant == w.Variant {
			c.waiting++
		}
		return c
	}
	c := &call{variant: w.Variant, given: w.GivenUp, done: make(chan struct{}), waiting: 1}
	if g.running == nil {
		g.running = map[string]*call{}
	}
	g.running[w.Key] = c
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.Bound)
	go func() {
		defer cancel()
		c.id, c.err = w.Do(work)
		g.mu.Lock()
		delete(g.running, w.Key)
		c.finished = true
		alone := c.waiting == 0
		g.mu.Unlock()
		if alone {
			c.giveUp()
		}
		close(c.done)
	}()
	return c
}

// All runs the functions beside each other, and returns when all have returned, with their errors.
func All(fs ...func() error) error {
	errs := make([]error, len(fs))
	var wg sync.WaitGroup
	for i, f := range fs[1:] {
		wg.Go(func() { errs[i+1] = f() })
	}
	errs[0] = fs[0]()
	wg.Wait()
	return errors.Join(errs...)
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
