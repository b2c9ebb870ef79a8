package volumebinding

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// written are objects as they were written here, as long as a cache does not show that: whoever decided by the cache alone would give away a volume that is taken, or
// write what the API server refuses for being about an old version. The zero value is ready. Its methods are safe for concurrent use.
type written[T metav1.Object] struct {
	mu sync.Mutex
	by map[cache.ObjectName]T
}

// note keeps an object as it was written.
func (w *written[T]) note(obj T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by == nil {
		w.by = map[cache.ObjectName]T{}
	}
	w.by[cache.MetaObjectToName(obj)] = obj
}

// newest is an object that a cache has as it is now, as far as that is known.
func (w *written[T]) newest(cached T) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := cache.MetaObjectToName(cached)
	ours, ok := w.by[name]
	if !ok {
		return cached
	}
	order, err := resourceversion.CompareResourceVersion(cached.GetResourceVersion(), ours.GetResourceVersion())
	if err == nil && order < 0 && cached.GetUID() == ours.GetUID() {
		return ours
	}
	delete(w.by, name)
	return cached
}

// forget forgets an object that is gone.
func (w *written[T]) forget(name cache.ObjectName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.by, name)
}
