package owned

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Takers are owners that take over what nobody owns and their selectors match. A selector that is empty, or cannot be read, matches nothing.
type Takers[T metav1.Object] struct{ selectors *Selectors[T] }

// NewTakers returns an index that has nobody.
func NewTakers[T metav1.Object](selector func(T) *metav1.LabelSelector) Takers[T] {
	return Takers[T]{NewSelectors(func(owner T) *metav1.LabelSelector {
		if s := selector(owner); s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0 {
			return s
		}
		return nil
	})}
}

// Each calls look with the name of every owner that comes, changes or goes, when the index shows it.
func (t Takers[T]) Each(look func(cache.ObjectName)) cache.ResourceEventHandler {
	return t.Keep(Each(look))
}

// Keep is a handler that has the index follow an informer, and tells next of each event when the index shows it.
func (t Takers[T]) Keep(next cache.ResourceEventHandler) cache.ResourceEventHandler {
	return t.selectors.Keep(next)
}

// Look calls look for each owner in an orphan's namespace that could take it over.
func (t Takers[T]) Look(orphan metav1.Object, look func(cache.ObjectName)) {
	if len(orphan.GetLabels()) == 0 {
		return
	}
	for _, owner := range t.selectors.About(orphan.GetNamespace(), orphan.GetLabels()) {
		look(owner)
	}
}
