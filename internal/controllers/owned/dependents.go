package owned

import (
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/kit/informer"
)

// Dependents has owners looked at when their dependents change.
type Dependents struct {
	// Kind is that of the owners.
	Kind schema.GroupVersionKind
	// Look has an owner looked at.
	Look func(owner cache.ObjectName)
	// Orphan is told of a dependent that no controller owns, when it is new or its labels have changed: somebody may take it over. nil: nobody does.
	Orphan func(dependent metav1.Object)
	// Unseen learns what the informer shows.
	Unseen *Unseen
}

// Watch follows the dependents of an informer, which is indexed for Of, too.
func (d Dependents) Watch(informer cache.SharedIndexInformer) (cache.ResourceEventHandlerRegistration, error) {
	if err := Index(informer); err != nil {
		return nil, err
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { d.changed(nil, object(obj)) },
		UpdateFunc: func(old, obj any) { d.changed(object(old), object(obj)) },
		DeleteFunc: func(obj any) { d.gone(object(obj)) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch dependents of %s: %w", d.Kind.Kind, err)
	}
	return registration, nil
}

// Each calls f with the name of every object that comes, changes or goes.
func Each(f func(cache.ObjectName)) cache.ResourceEventHandler {
	look := func(obj any) {
		if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
			f(name)
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, obj any) { look(obj) }, DeleteFunc: look}
}

func object(obj any) metav1.Object {
	o, _ := informer.Last[metav1.Object](obj)
	return o
}

func (d Dependents) changed(old, now metav1.Object) {
	if old != nil && old.GetUID() != now.GetUID() { // the one has gone and another one has its name; the informer was not told of the moment between
		d.gone(old)
		old = nil
	}
	if now.GetDeletionTimestamp() != nil {
		d.went(now)
	}
	before, owned := d.owner(old)
	owner, still := d.owner(now)
	if owned && (!still || before != owner) {
		d.Look(before)
	}
	switch {
	case still:
		d.Look(owner)
	case metav1.GetControllerOfNoCopy(now) == nil && now.GetDeletionTimestamp() == nil && d.Orphan != nil:
		if old == nil || owned || metav1.GetControllerOfNoCopy(old) != nil || !maps.Equal(old.GetLabels(), now.GetLabels()) {
			d.Orphan(now)
		}
	}
}

func (d Dependents) gone(last metav1.Object) {
	d.went(last)
	if owner, ok := d.owner(last); ok {
		d.Look(owner)
	}
}

// went has those looked at who waited for a dependent to go, whosever it is by now.
func (d Dependents) went(dependent metav1.Object) {
	if dependent == nil {
		return
	}
	for _, owner := range d.Unseen.Went(dependent.GetUID()) {
		d.Look(owner)
	}
}

// owner is the owner of a dependent, if it is one of the kind.
func (d Dependents) owner(dependent metav1.Object) (cache.ObjectName, bool) {
	if dependent == nil {
		return cache.ObjectName{}, false
	}
	of := metav1.GetControllerOfNoCopy(dependent)
	if of == nil || of.Kind != d.Kind.Kind {
		return cache.ObjectName{}, false
	}
	if group, err := schema.ParseGroupVersion(of.APIVersion); err != nil || group.Group != d.Kind.Group {
		return cache.ObjectName{}, false
	}
	return cache.NewObjectName(dependent.GetNamespace(), of.Name), true
}
