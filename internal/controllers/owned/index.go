package owned

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// byController is the index of objects by the UID of their controller, and of those without one by their namespace, and by each of their labels in it.
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
		keys := []string{orphansOf(object.GetNamespace())}
		for key, value := range object.GetLabels() {
			keys = append(keys, orphansWith(object.GetNamespace(), key, value))
		}
		return keys, nil
	}})
	if err != nil {
		return fmt.Errorf("index by controller: %w", err)
	}
	return nil
}

// orphansOf is the key of the objects of a namespace that have no controller. No UID has a slash.
func orphansOf(namespace string) string { return "orphans/" + namespace }

// orphansWith is the key of those that have a label. No namespace has a slash.
func orphansWith(namespace, key, value string) string {
	return "orphans/" + namespace + "/" + key + "=" + value
}

// Of are the objects whose controller has a UID. They are the informer's: who changes one copies it.
func Of[T any](informer cache.SharedIndexInformer, owner types.UID) ([]T, error) {
	return indexed[T](informer, string(owner))
}

// OfOrOrphans are the objects whose controller is an owner, and those of its namespace that have no controller and that its selector may match: they have one of the labels that it
// asks for, so that what nobody ever takes over is not looked at with each look at an owner.
func OfOrOrphans[T any](informer cache.SharedIndexInformer, owner metav1.Object, selector labels.Selector) ([]T, error) {
	all, err := indexed[T](informer, string(owner.GetUID()))
	if err != nil {
		return nil, err
	}
	requirements, some := selector.Requirements()
	if !some {
		return all, nil // it matches nothing
	}
	var few []T
	asked := false
	for _, r := range requirements {
		values, is := r.ValuesUnsorted(), r.Operator()
		if len(values) != 1 || is != selection.Equals && is != selection.DoubleEquals && is != selection.In {
			continue
		}
		with, err := indexed[T](informer, orphansWith(owner.GetNamespace(), r.Key(), values[0]))
		if err != nil {
			return nil, err
		}
		if !asked || len(with) < len(few) {
			few, asked = with, true
		}
		if len(few) == 0 {
			break
		}
	}
	if !asked {
		if few, err = indexed[T](informer, orphansOf(owner.GetNamespace())); err != nil {
			return nil, err
		}
	}
	return append(all, few...), nil
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
