package agent

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// watchers are those who want to know when the runtime's state of a pod may have changed. They are safe for concurrent use.
type watchers struct {
	mu  sync.Mutex // guards what follows
	all map[types.UID][]chan struct{}
}

func newWatchers() *watchers { return &watchers{all: map[types.UID][]chan struct{}{}} }

// Watch ticks whenever the runtime's state of the pod may have changed, until stop is called.
func (w *watchers) Watch(uid types.UID) (ticks <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all[uid] = append(w.all[uid], c)
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.all[uid] = slices.DeleteFunc(w.all[uid], func(o chan struct{}) bool { return o == c })
		if len(w.all[uid]) == 0 {
			delete(w.all, uid)
		}
	}
}

// tell ticks for those who watch the pod.
func (w *watchers) tell(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tick(w.all[uid])
}

// tellAll ticks for everybody.
func (w *watchers) tellAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, of := range w.all {
		w.tick(of)
	}
}

func (*watchers) tick(all []chan struct{}) {
	for _, c := range all {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
