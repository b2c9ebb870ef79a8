// Package queue is the line of what a controller has still to look at.
//
// An item is in line once, however often it was added, and is never worked on by two workers at a time: who is added meanwhile is looked at again
// afterwards. One that fails is tried again at once, and then after times that double up to a minute.
//
// It is client-go's workqueue with timers of its own: that one's delays wake every ten seconds for nothing.
package queue

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// The delays of what fails: the first one, which doubles each time, and the longest.
const (
	firstDelay   = 5 * time.Millisecond
	longestDelay = time.Minute
)

// Queue is a line of items. Its methods are safe for concurrent use.
type Queue[T comparable] struct {
	ready workqueue.TypedInterface[T]

	mu sync.Mutex
	// later are the items that wait for a time, failures is how often in a row an item has failed.
	later    map[T]*alarm
	failures map[T]int
	closed   bool
}

// alarm puts an item in line at a time.
type alarm struct {
	at    time.Time
	timer *time.Timer
}

// New returns an empty queue. Whoever does not run it calls ShutDown.
func New[T comparable]() *Queue[T] {
	return &Queue[T]{ready: workqueue.NewTyped[T](), later: map[T]*alarm{}, failures: map[T]int{}}
}

// Add puts an item in line.
func (q *Queue[T]) Add(item T) { q.ready.Add(item) }

// AddAfter puts an item in line when a time is over. Of two times the earlier one counts: whoever is worked on asks for another look again, if need be.
func (q *Queue[T]) AddAfter(item T, d time.Duration) {
	if d <= 0 {
		q.Add(item)
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	at := time.Now().Add(d)
	if q.closed {
		return
	}
	if old := q.later[item]; old != nil {
		if !at.Before(old.at) {
			return
		}
		old.timer.Stop()
	}
	a := &alarm{at: at}
	q.later[item] = a
	a.timer = time.AfterFunc(d, func() {
		q.mu.Lock()
		current := q.later[item] == a
		if current {
			delete(q.later, item)
		}
		q.mu.Unlock()
		if current {
			q.Add(item)
		}
	})
}

// Retry puts an item that has failed in line again, later each time.
func (q *Queue[T]) Retry(item T) {
	q.mu.Lock()
	n := q.failures[item]
	q.failures[item] = n + 1
	q.mu.Unlock()
	q.AddAfter(item, min(firstDelay<<min(n, 20), longestDelay))
}

// Forget begins the delays of an item anew.
func (q *Queue[T]) Forget(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.failures, item)
}

// Get returns the next item when there is one; false when the queue is shut down. Whoever gets one calls Done when it has been worked on.
func (q *Queue[T]) Get() (item T, ok bool) {
	item, shutdown := q.ready.Get()
	return item, !shutdown
}

// Done says that an item has been worked on.
func (q *Queue[T]) Done(item T) { q.ready.Done(item) }

// ShutDown ends the queue: Get returns false when the line is empty, and nothing gets into it any more.
func (q *Queue[T]) ShutDown() {
	q.mu.Lock()
	q.closed = true
	for item, a := range q.later {
		a.timer.Stop()
		delete(q.later, item)
	}
	q.mu.Unlock()
	q.ready.ShutDown()
}

// Run lets workers work on the items until ctx ends, and returns when they have ended. An item whose work fails is told of and tried again.
func (q *Queue[T]) Run(ctx context.Context, workers int, work func(context.Context, T) error, failed func(T, error)) {
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for q.next(ctx, work, failed) {
			}
		})
	}
	<-ctx.Done()
	q.ShutDown()
	all.Wait()
}

func (q *Queue[T]) next(ctx context.Context, work func(context.Context, T) error, failed func(T, error)) bool {
	item, ok := q.Get()
	if !ok {
		return false
	}
	defer q.Done(item)
	switch err := work(ctx, item); {
	case ctx.Err() != nil:
		return false // what is left is found again at the next start
	case err != nil:
		failed(item, err)
		q.Retry(item)
	default:
		q.Forget(item)
	}
	return true
}
