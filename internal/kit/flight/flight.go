// Package flight lets calls that ask for the same thing share one run of the work.
//
// A client whose call timed out calls again while the first attempt still works. Colliding with it ("name is reserved") helps
// nobody: the second call waits for the first one's result.
package flight

import (
	"context"
	"sync"
	"time"
)

// Group runs works whose result is a V. S is what the work shares with all who wait for it, such as its progress; struct{} for nothing. The zero value is
// usable; all methods are safe for concurrent use.
type Group[V, S any] struct {
	mu      sync.Mutex
	runs    map[string]*run[V, S] // by Work.Key
	running sync.WaitGroup
}

// Work is what Join runs.
type Work[V, S any] struct {
	// Key orders: of one key one runs at a time. Variant tells what the request asks for: those of the same one are joined.
	Key, Variant string
	// Bound is how long it may take; 0: as long as it likes.
	Bound time.Duration
	// Do does it. Its context has the values of the first caller's, and does not end with it.
	Do func(context.Context) (V, error)
	// Shared is what those who join get to see of the one who began; see Join.
	Shared S
	// Cancel: the context of Do ends when the last one has gone who waited, and whoever comes then begins anew. Otherwise the work goes on.
	Cancel bool
	// GivenUp is told the result when Do has succeeded and the last one that waited for it has gone without it. May be nil.
	GivenUp func(V)
}

// run is a work under way.
type run[V, S any] struct {
	work   Work[V, S]
	cancel context.CancelFunc
	done   chan struct{} // closed when result and err are set
	result V
	err    error
	// waiting is how many wait for the result who want it, finished whether it is there; guarded by Group.mu.
	waiting  int
	finished bool
}

// Join does the work, or waits for the work of the same key and variant that is under way and returns its result. While some of another variant is under way,
// which is a request for something else under the same name, it waits for its end first. With follow, which may be nil, the caller looks at what the work
// shares until leave is called, which is before Join returns. The error is the work's, or the cause of the end of ctx.
func (g *Group[V, S]) Join(ctx context.Context, w Work[V, S], follow func(S) (leave func())) (V, error) {
	for {
		r := g.enter(ctx, w)
		if r.work.Variant == w.Variant {
			return g.wait(ctx, r, follow)
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			var none V
			return none, context.Cause(ctx)
		}
	}
}

// Wait returns when no work is under way.
func (g *Group[V, S]) Wait() { g.running.Wait() }

// enter returns the run under the key that is under way, after starting it if there was none.
func (g *Group[V, S]) enter(ctx context.Context, w Work[V, S]) *run[V, S] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r, ok := g.runs[w.Key]; ok {
		if r.work.Variant == w.Variant {
			r.waiting++
		}
		return r
	}
	r := &run[V, S]{work: w, done: make(chan struct{}), waiting: 1}
	if g.runs == nil {
		g.runs = map[string]*run[V, S]{}
	}
	g.runs[w.Key] = r
	var own context.Context
	if w.Bound > 0 {
		own, r.cancel = context.WithTimeout(context.WithoutCancel(ctx), w.Bound)
	} else {
		own, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	}
	g.running.Go(func() { g.do(own, r) })
	return r
}

func (g *Group[V, S]) do(ctx context.Context, r *run[V, S]) {
	defer r.cancel()
	r.result, r.err = r.work.Do(ctx)
	g.mu.Lock()
	g.forget(r)
	r.finished = true
	alone := r.waiting == 0
	g.mu.Unlock()
	if alone {
		r.giveUp()
	}
	close(r.done)
}

// forget is called with mu held. A run that nobody wanted any more may have a successor under its key.
func (g *Group[V, S]) forget(r *run[V, S]) {
	if g.runs[r.work.Key] == r {
		delete(g.runs, r.work.Key)
	}
}

// wait is for one who has entered a run that does what he wants.
func (g *Group[V, S]) wait(ctx context.Context, r *run[V, S], follow func(S) (leave func())) (V, error) {
	if follow != nil {
		defer follow(r.work.Shared)()
	}
	select {
	case <-r.done:
	case <-ctx.Done():
	}
	g.leave(ctx, r)
	if ctx.Err() != nil {
		var none V
		return none, context.Cause(ctx)
	}
	return r.result, r.err
}

// leave ends the wait of one who wanted the result. The last one that leaves without it gives up what was made, or is made.
func (g *Group[V, S]) leave(ctx context.Context, r *run[V, S]) {
	g.mu.Lock()
	r.waiting--
	last, finished := r.waiting == 0 && ctx.Err() != nil, r.finished
	if last && !finished && r.work.Cancel {
		r.cancel()
		g.forget(r) // whoever comes next starts anew instead of joining what is being cancelled
	}
	g.mu.Unlock()
	if last && finished {
		r.giveUp()
	}
}

func (r *run[V, S]) giveUp() {
	if r.err == nil && r.work.GivenUp != nil {
		r.work.GivenUp(r.result)
	}
}
