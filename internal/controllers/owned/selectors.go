package owned

import (
	"maps"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Selectors finds the objects of a kind that select others, by what they select. What a question costs does not grow with how many there are, but with how many ways there
// are, in a namespace, of which labels they ask for: those that ask for values of the same ones are looked up at once. Selectors that ask for no value are gone through.
//
// Make it with NewSelectors. Its methods are safe for concurrent use.
type Selectors[T metav1.Object] struct {
	of func(T) *metav1.LabelSelector

	mu     sync.RWMutex
	placed map[cache.ObjectName]place
	// asked are the selectors by namespace, and by the labels of which they ask for a value.
	asked map[string]map[string]*alike
}

// alike are the selectors of a namespace that ask for values of the same labels.
type alike struct {
	keys []string // sorted
	by   map[string]map[cache.ObjectName]*metav1.LabelSelector
}

// place is where a selector is: the labels of which it asks for a value, and those values.
type place struct{ keys, values string }

// NewSelectors returns an index that has nothing. of is the selector of an object; nil: it selects nothing.
func NewSelectors[T metav1.Object](of func(T) *metav1.LabelSelector) *Selectors[T] {
	return &Selectors[T]{of: of, placed: map[cache.ObjectName]place{}, asked: map[string]map[string]*alike{}}
}

// Keep is a handler that has the index follow an informer, and tells next of each event when the index shows it: what is in no answer is about to be told of.
func (s *Selectors[T]) Keep(next cache.ResourceEventHandler) cache.ResourceEventHandler {
	return follower{next, func(obj any) {
		if o, ok := obj.(T); ok {
			s.Set(o)
		}
	}, s.drop}
}

// Set notes what an object selects now.
func (s *Selectors[T]) Set(object T) {
	selector, name := s.of(object), cache.MetaObjectToName(object)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take(name)
	if selector == nil {
		return
	}
	wanted := wants(selector)
	keys := slices.Sorted(maps.Keys(wanted))
	at := place{keys: strings.Join(keys, "\n")}
	namespace := s.asked[name.Namespace]
	if namespace == nil {
		namespace = map[string]*alike{}
		s.asked[name.Namespace] = namespace
	}
	group := namespace[at.keys]
	if group == nil {
		group = &alike{keys, map[string]map[cache.ObjectName]*metav1.LabelSelector{}}
		namespace[at.keys] = group
	}
	values, _ := group.values(wanted)
	at.values = string(values)
	if group.by[at.values] == nil {
		group.by[at.values] = map[cache.ObjectName]*metav1.LabelSelector{}
	}
	group.by[at.values][name] = selector
	s.placed[name] = at
}

func (s *Selectors[T]) drop(name cache.ObjectName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take(name)
}

// take forgets what an object selects, and leaves nothing that is empty.
func (s *Selectors[T]) take(name cache.ObjectName) {
	at, ok := s.placed[name]
	if !ok {
		return
	}
	delete(s.placed, name)
	namespace := s.asked[name.Namespace]
	group := namespace[at.keys]
	if delete(group.by[at.values], name); len(group.by[at.values]) == 0 {
		delete(group.by, at.values)
	}
	if len(group.by) == 0 {
		delete(namespace, at.keys)
	}
	if len(namespace) == 0 {
		delete(s.asked, name.Namespace)
	}
}

// About are the objects of a namespace whose selectors are about what has these labels.
func (s *Selectors[T]) About(namespace string, labels map[string]string) (all []cache.ObjectName) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, group := range s.asked[namespace] {
		values, has := group.values(labels)
		if !has {
			continue
		}
		for name, selector := range group.by[string(values)] {
			if Selects(selector, labels) {
				all = append(all, name)
			}
		}
	}
	return all
}

// values are those that the labels have which selectors ask for, if all are there.
func (a *alike) values(labels map[string]string) ([]byte, bool) {
	var values []byte
	for _, key := range a.keys {
		value, has := labels[key]
		if !has {
			return nil, false
		}
		values = append(append(values, value...), '\n')
	}
	return values, true
}

// wants are the values that a selector asks for, each of its label.
func wants(selector *metav1.LabelSelector) map[string]string {
	if len(selector.MatchExpressions) == 0 {
		return selector.MatchLabels
	}
	wanted := map[string]string{}
	for i := range selector.MatchExpressions {
		if e := &selector.MatchExpressions[i]; e.Operator == metav1.LabelSelectorOpIn && len(e.Values) == 1 {
			wanted[e.Key] = e.Values[0]
		}
	}
	maps.Copy(wanted, selector.MatchLabels) // of two values that one label is to have either will do: nothing has both
	return wanted
}

// follower is a handler that an index follows before the next one is told.
type follower struct {
	next cache.ResourceEventHandler
	set  func(obj any)
	drop func(cache.ObjectName)
}

// OnAdd implements cache.ResourceEventHandler.
func (k follower) OnAdd(obj any, initial bool) {
	k.set(obj)
	k.next.OnAdd(obj, initial)
}

// OnUpdate implements cache.ResourceEventHandler.
func (k follower) OnUpdate(old, obj any) {
	k.set(obj)
	k.next.OnUpdate(old, obj)
}

// OnDelete implements cache.ResourceEventHandler.
func (k follower) OnDelete(obj any) {
	if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
		k.drop(name)
	}
	k.next.OnDelete(obj)
}
