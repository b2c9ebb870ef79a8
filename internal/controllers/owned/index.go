package owned

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// byController is the index of objects by the UID of their controller, and of those without one by their namespace.
const byController = "monopod.dev/by-controller"

// Index has dependents found by their controller. An informer may be given to it more than once, also when it runs already, but not by two callers at a time.
func Index(informer cache.SharedIndexInformer) error {
	if _, has := informer.GetIndexer().GetIndexers()[byController]; has {
		return nil
	}
	err := informer.AddIndexers(cache.Indexers{byController: func(obj any) ([]string, error) {
		object, err := meta.Accessor(obj)
		if err != nil {
			return nil, fmt.Errorf("index by controller: %w", err)
		}
		if of := metav1.GetControllerOfNoCopy(object); of != nil {
			return []string{string(of.UID)}, nil
		}
		return []string{orphansOf(object.GetNamespace())}, nil
	}})
	if err != nil {
		return fmt.Errorf("index by controller: %w", err)
	}
	return nil
}

// orphansOf is the key of the objects of a namespace that have no controller. No UID has a slash.
func orphansOf(namespace string) string { return "orphans/" + namespace }

// Of are the objects whose controller has a UID. They are the informer's: who changes one copies it.
func Of[T any](informer cache.SharedIndexInformer, owner types.UID) ([]T, error) {
	return indexed[T](informer, string(owner))
}

// OfOrOrphans are the objects whose controller has a UID, and those of its namespace that have no controller.
func OfOrOrphans[T any](informer cache.SharedIndexInformer, owner metav1.Object) ([]T, error) {
	of, err := indexed[T](informer, string(owner.GetUID()))
	if err != nil {
		return nil, err
	}
	orphans, err := indexed[T](informer, orphansOf(owner.GetNamespace()))
	return append(of, orphans...), err
}

func indexed[T any](informer cache.SharedIndexInformer, key string) ([]T, error) {
	objects, err := informer.GetIndexer().ByIndex(byController, key)
	if err != nil {
		return nil, fmt.Errorf("objects by their controller: %w", err)
	}
	all := make([]T, 0, len(objects))
	for _, object := range objects {
		if of, ok := object.(T); ok {
			all = append(all, of)
		}
	}
	return all, nil
}
