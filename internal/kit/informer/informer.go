// Package informer reads what the informers of client-go tell their handlers.
package informer

import "k8s.io/client-go/tools/cache"

// Last is the object that an event is about, as it was known last. That of a deletion which happened in a gap of the watch is told of in a wrapping, as a
// cache.DeletedFinalStateUnknown; of any other event it is the object itself. false: it is no T.
func Last[T any](obj any) (T, bool) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	of, ok := obj.(T)
	return of, ok
}
