package stats

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"
)

// A layer is measured anew when somebody asks and the last measurement is older than layerAge, or than layerShare times what
// it took: so the walks take at most a fiftieth of a processor, however large a layer is.
const (
	layerAge   = 10 * time.Second
	layerShare = 50
)

// layerWalks is how many layers are measured beside each other. One walk at a time goes forward, for layerTurn, so that a
// huge layer delays the measurement of the others only so much.
const (
	layerWalks = 4
	layerTurn  = 50 * time.Millisecond
)

// layerUsage is a measurement.
type layerUsage struct {
	at            time.Time
	took          time.Duration
	bytes, inodes uint64
}

// due says whether it is time to measure again.
func (u *layerUsage) due(now time.Time) bool {
	return now.Sub(u.at) > max(layerAge, layerShare*u.took)
}

// layer is what is known of one container's.
type layer struct {
	dir    string
	last   *layerUsage
	queued bool // or being measured
	told   bool // a fault was logged
}

// layers measures the writable layers of containers.
type layers struct {
	log  *slog.Logger
	wake chan struct{} // there may be something in the queue
	turn chan struct{} // held by the walk that goes forward

	mu    sync.Mutex
	all   map[string]*layer
	queue []string
}

// usage returns the last measurement, and asks for a new one when it is time.
func (l *layers) usage(id, dir string) (layerUsage, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(id, dir)
	if e.last == nil {
		l.enqueue(id, e)
		return layerUsage{}, false
	}
	if e.last.due(time.Now()) {
		l.enqueue(id, e)
	}
	return *e.last, true
}

// want asks for a measurement.
func (l *layers) want(id, dir string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enqueue(id, l.entry(id, dir))
}

func (l *layers) forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, id)
}

func (l *layers) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

func (l *layers) keep(live func(id string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.all, func(id string, _ *layer) bool { return !live(id) })
}

func (l *layers) entry(id, dir string) *layer {
	e := l.all[id]
	if e == nil {
		e = &layer{dir: dir}
		if l.all == nil {
			l.all = map[string]*layer{}
		}
		l.all[id] = e
	}
	return e
}

func (l *layers) enqueue(id string, e *layer) {
	if e.queued {
		return
	}
	e.queued = true
	l.queue = append(l.queue, id)
	l.signal()
}

func (l *layers) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// next takes a layer from the queue.
func (l *layers) next() (id string, e *layer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) > 0 {
		id, l.queue = l.queue[0], l.queue[1:]
		if e := l.all[id]; e != nil {
			if len(l.queue) > 0 {
				l.signal() // for another walk
			}
			return id, e
		}
	}
	return "", nil
}

// run measures what is in the queue until ctx ends.
func (l *layers) run(ctx context.Context) error {
	var wg sync.WaitGroup
	for range layerWalks {
		wg.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-l.wake:
				}
				for id, e := l.next(); e != nil && ctx.Err() == nil; id, e = l.next() {
					l.measure(ctx, id, e)
				}
			}
		})
	}
	wg.Wait()
	return ctx.Err()
}

// measure walks over one layer and keeps what it finds.
func (l *layers) measure(ctx context.Context, id string, e *layer) {
	w := walker{ctx: ctx, turn: l.turn}
	at := time.Now()
	err := w.walk(e.dir)
	l.mu.Lock()
	defer l.mu.Unlock()
	e.queued = false
	if err == nil {
		e.last = &layerUsage{at: at, took: w.took, bytes: w.bytes, inodes: w.inodes}
	}
	if (err != nil || w.unfinished) && ctx.Err() == nil && l.all[id] == e && !e.told {
		e.told = true
		l.log.Warn("a writable layer is not measured, or not all of it", "container", id, "directory", e.dir, "unfinished", w.unfinished, "error", err)
	}
}
