package resource

import "k8s.io/apimachinery/pkg/runtime"

// Watched is the object of an event: a watch cache hands what goes to several watchers out in a wrapper, for whoever encodes it.
func Watched(obj runtime.Object) runtime.Object {
	if shared, ok := obj.(runtime.CacheableObject); ok {
		return shared.GetObject()
	}
	return obj
}
