package owned

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Labelled finds the objects of a kind by their labels: what is selected is looked for among those that have the rarest of the labels that are asked for, however many others
// there are. A selector that asks for no value goes through its namespace.
//
// Make it with NewLabelled. Its methods are safe for concurrent use.
type Labelled[T interface {
	comparable
	metav1.Object
}] struct {
	mu      sync.RWMutex
	objects map[cache.ObjectName]T
	by      map[label]map[T]struct{}
}

// label is one that objects of a namespace have. They all have that without a key.
type label struct{ namespace, key, value string }

// NewLabelled returns an index that has nothing.
func NewLabelled[T interface {
	comparable
	metav1.Object
}]() *Labelled[T] {
	return &Labelled[T]{objects: map[cache.ObjectName]T{}, by: map[label]map[T]struct{}{}}
}

// Keep is a handler that has the index follow an informer, and tells next of each event when the index shows it.
func (l *Labelled[T]) Keep(next cache.ResourceEventHandler) cache.ResourceEventHandler {
	return follower{next, func(obj any) {
		if o, ok := obj.(T); ok {
			l.Set(o)
		}
	}, l.drop}
}

// Set notes an object, in the place of the one of its name.
func (l *Labelled[T]) Set(object T) {
	name := cache.MetaObjectToName(object)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.take(name)
	l.objects[name] = object
	each(object, func(has label) {
		if l.by[has] == nil {
			l.by[has] = map[T]struct{}{}
		}
		l.by[has][object] = struct{}{}
	})
}

func (l *Labelled[T]) drop(name cache.ObjectName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.take(name)
}

func (l *Labelled[T]) take(name cache.ObjectName) {
	object, ok := l.objects[name]
	if !ok {
		return
	}
	delete(l.objects, name)
	each(object, func(had label) {
		if delete(l.by[had], object); len(l.by[had]) == 0 {
			delete(l.by, had)
		}
	})
}

func each(object metav1.Object, do func(label)) {
	namespace := object.GetNamespace()
	do(label{namespace: namespace})
	for key, value := range object.GetLabels() {
		do(label{namespace, key, value})
	}
}

// Selected are the objects of a namespace that a selector is about. They are the informer's: who changes one copies it.
func (l *Labelled[T]) Selected(namespace string, selector *metav1.LabelSelector) (all []T) {
	if selector == nil {
		return nil
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	few := l.by[label{namespace: namespace}]
	for key, value := range wants(selector) {
		if with := l.by[label{namespace, key, value}]; len(with) < len(few) {
			few = with
		}
	}
	for object := range few {
		if Selects(selector, object.GetLabels()) {
			all = append(all, object)
		}
	}
	return all
}
