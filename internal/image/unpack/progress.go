package unpack

import (
	"slices"
	"sync"
	"time"

	digest "github.com/opencontainers/go-digest"
)

// LayerState says how far a layer of a pull is:
//
//	waiting -> downloading -> unpacking -> verifying -> done
//	waiting -> exists
//
// A layer is unpacked while it is downloaded; it is "unpacking" from the moment when all of it is there.
type LayerState string

// The states of a layer.
const (
	LayerWaiting     LayerState = "waiting"
	LayerDownloading LayerState = "downloading"
	LayerUnpacking   LayerState = "unpacking"
	LayerVerifying   LayerState = "verifying" // unpacked; it becomes a part of the image when those below it have
	LayerDone        LayerState = "done"
	LayerExists      LayerState = "exists" // another image has brought it
)

// LayerProgress is how far one layer is.
type LayerProgress struct {
	Digest digest.Digest // of the compressed layer
	State  LayerState
	// Done and Total are bytes of the compressed layer. Done begins with what an earlier pull has left.
	Done, Total int64
}

// Progress is how far a pull is. Layers are as in the manifest, the lowest first; there are none before it is known.
type Progress struct {
	Layers []LayerProgress
}

// progressInterval is how often a callback is told of bytes. A layer's new state is told at once.
const progressInterval = 100 * time.Millisecond

// Tracker holds how far a pull is, for the callers who want to be told. A nil Tracker is good for nothing and all its
// methods may be called.
type Tracker struct {
	mu      sync.Mutex
	layers  []LayerProgress
	changed chan struct{} // closed at the next change of a state
}

// NewTracker makes the tracker of one pull.
func NewTracker() *Tracker { return &Tracker{changed: make(chan struct{})} }

func (t *Tracker) begin(layers []LayerProgress) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.layers = layers
	t.wake()
}

func (t *Tracker) state(i int, s LayerState) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	l := &t.layers[i]
	if l.State == s {
		return
	}
	l.State = s
	if s == LayerDone || s == LayerExists {
		l.Done = l.Total
	}
	t.wake()
}

func (t *Tracker) bytes(i int, done int64) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.layers[i].Done = done
}

// wake is called with mu held.
func (t *Tracker) wake() {
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *Tracker) snapshot() (Progress, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Progress{Layers: slices.Clone(t.layers)}, t.changed
}

// Follow tells report how far the pull is until stop is called, which tells it the last state. report is called by one
// goroutine at a time; a slow one misses states, and holds nobody up but its own caller.
func (t *Tracker) Follow(report func(Progress)) (stop func()) {
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(progressInterval)
		defer tick.Stop()
		var last Progress
		for ended := false; !ended; {
			p, changed := t.snapshot()
			if !slices.Equal(p.Layers, last.Layers) {
				report(p)
				last = p
			}
			select {
			case <-done:
				ended = true
			case <-changed:
			case <-tick.C:
			}
		}
		if p, _ := t.snapshot(); !slices.Equal(p.Layers, last.Layers) {
			report(p)
		}
	})
	return func() {
		close(done)
		running.Wait()
	}
}
