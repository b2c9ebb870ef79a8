package volumebinding

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/kit/queue"
)

// kind is what a Controller has of claims, or of volumes.
type kind[T metav1.Object] struct {
	informer cache.SharedIndexInformer
	queue    *queue.Queue[cache.ObjectName]
	written  written[T]
	told     told
}

// find is an object as it is now, as far as that is known; false: there is none.
func (k *kind[T]) find(name cache.ObjectName) (obj T, ok bool) {
	cached, _, _ := k.informer.GetStore().GetByKey(name.String()) // which has no errors
	if obj, ok = cached.(T); !ok {
		k.written.forget(name)
		return obj, false
	}
	return k.written.newest(obj), true
}

// in are the objects of an index, as they are now.
func (k *kind[T]) in(index, key string) []T {
	objs, _ := k.informer.GetIndexer().ByIndex(index, key) // whose error is that there is no such index
	list := make([]T, 0, len(objs))
	for _, obj := range objs {
		if of, ok := obj.(T); ok {
			list = append(list, k.written.newest(of))
		}
	}
	return list
}

// wake has the objects of an index looked at.
func (k *kind[T]) wake(index, key string) {
	for _, obj := range k.in(index, key) {
		k.queue.Add(cache.MetaObjectToName(obj))
	}
}
