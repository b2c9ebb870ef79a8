package stats

import (
	"maps"
	"math/bits"
	"sync"
	"time"
)

// A rate is told over a window of at least minWindow, so that two clients who ask at once do not get noise, and of at most
// maxWindow, so that nobody takes the average of a day for the present.
const (
	minWindow = time.Second
	maxWindow = 5 * time.Minute
)

// sample is a counter of nanoseconds at one time.
type sample struct {
	at    time.Time
	usage uint64
}

// window holds the last sample and one before it that is at least minWindow older.
type window struct{ base, last sample }

// add takes a sample in, and tells the rate that it ends: nanoseconds a second. There is none without an earlier sample that
// fits, or when the counter has gone back.
func (w *window) add(s sample) (rate uint64, ok bool) {
	switch {
	case w.last.at.IsZero() || s.usage < w.last.usage: // the first, or another cgroup's of the same name
		*w = window{last: s}
	case s.at.Sub(w.last.at) >= minWindow:
		w.base, w.last = w.last, s
	}
	span := s.at.Sub(w.base.at)
	if w.base.at.IsZero() || s.usage < w.base.usage || span < minWindow || span > maxWindow {
		return 0, false
	}
	hi, lo := bits.Mul64(s.usage-w.base.usage, uint64(time.Second))
	if hi >= uint64(span) {
		return 0, false // no machine is that fast
	}
	rate, _ = bits.Div64(hi, lo, uint64(span))
	return rate, true
}

// rates holds the windows of all sandboxes and containers, by id.
type rates struct {
	mu  sync.Mutex
	all map[string]*window
}

func (r *rates) add(id string, s sample) (uint64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.all[id]
	if w == nil {
		w = &window{}
		if r.all == nil {
			r.all = map[string]*window{}
		}
		r.all[id] = w
	}
	return w.add(s)
}

func (r *rates) forget(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, id)
}

func (r *rates) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

func (r *rates) keep(live func(id string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.all, func(id string, _ *window) bool { return !live(id) })
}
