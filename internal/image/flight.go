package image

import (
	"context"
	"sync"
)

// flights joins calls for the same thing: the first starts the work, later ones wait for its result. The work goes on
// as long as anybody waits for it; it is not bound to the context of the caller who happened to be first.
type flights struct {
	// life ends the work of all flights when the store closes.
	life context.Context

	mu      sync.Mutex
	byKey   map[string]*flight
	running sync.WaitGroup
}

type flight struct {
	track   *tracker
	done    chan struct{} // closed when img and err are set
	img     Image
	err     error
	waiters int // guarded by flights.mu
	cancel  context.CancelFunc
}

func (f *flights) do(ctx context.Context, key string, report func(Progress), work func(context.Context, *tracker) (Image, error)) (Image, error) {
	f.mu.Lock()
	fl := f.byKey[key]
	if fl == nil {
		fl = f.start(ctx, key, work)
	}
	fl.waiters++
	f.mu.Unlock()
	if report != nil {
		defer fl.track.follow(report)()
	}

	select {
	case <-fl.done:
		return fl.img, fl.err
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl.waiters--; fl.waiters == 0 {
		fl.cancel()
		f.forget(key, fl) // whoever comes next starts anew instead of joining what is being cancelled
	}
	return Image{}, context.Cause(ctx)
}

// start is called with mu held.
func (f *flights) start(ctx context.Context, key string, work func(context.Context, *tracker) (Image, error)) *flight {
	wctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stopAfter := context.AfterFunc(f.life, cancel)
	fl := &flight{track: newTracker(), done: make(chan struct{}), cancel: cancel}
	if f.byKey == nil {
		f.byKey = map[string]*flight{}
	}
	f.byKey[key] = fl
	f.running.Go(func() {
		defer cancel()
		defer stopAfter()
		fl.img, fl.err = work(wctx, fl.track)
		f.mu.Lock()
		f.forget(key, fl)
		f.mu.Unlock()
		close(fl.done)
	})
	return fl
}

func (f *flights) forget(key string, fl *flight) {
	if f.byKey[key] == fl {
		delete(f.byKey, key)
	}
}

// wait returns when no work is running any more.
func (f *flights) wait() { f.running.Wait() }
