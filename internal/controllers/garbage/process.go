package garbage

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// process does what is to be done about an object now. It is called for one at a time by one worker only.
func (c *Collector) process(ctx context.Context, uid types.UID) error {
	v, ok := c.graph.view(uid)
	if !ok {
		return nil
	}
	switch {
	case v.orphan:
		return c.orphan(ctx, v)
	case v.foreground:
		return c.finish(ctx, v)
	case v.deleting, v.owned:
		return nil
	}
	// The graph says that an owner may be missing. What is done about it rests on what the API server says.
	m, err := c.objects.get(ctx, v.object)
	if err != nil || m == nil || m.DeletionTimestamp != nil {
		return err // the watch tells of those that have gone, or are going
	}
	owners, err := c.standings(ctx, v.object, m.OwnerReferences)
	var unclear *unclearError
	if errors.As(err, &unclear) {
		c.park(uid, unclear.kind)
		return nil
	}
	if err != nil || owners == nil {
		return err
	}
	a := decide(m, owners, v.dependents, v.circular)
	switch {
	case len(a.disown) > 0:
		return c.objects.disown(ctx, v.object, a.disown...)
	case a.unblock:
		if err := c.objects.unblock(ctx, v.object); err != nil {
			return err
		}
		if m, err = c.objects.get(ctx, v.object); err != nil || m == nil {
			return err
		}
		fallthrough
	case a.remove:
		c.config.Log.Debug("object deleted: its owners have gone", "kind", v.kind.gvk.Kind, "namespace", v.namespace, "name", v.name, "uid", uid)
		return c.objects.remove(ctx, v.object, m, a.policy)
	}
	return nil
}

// unclearError says that the API server does not know a kind, for now: whether the owner is there cannot be told.
type unclearError struct{ kind schema.GroupVersionKind }

func (e *unclearError) Error() string {
	return fmt.Sprintf("the API server does not know the kind %s", e.kind)
}

// standings says how each owner of an object is; nil: the object's owners cannot be, and it is left alone.
func (c *Collector) standings(ctx context.Context, x object, owners []metav1.OwnerReference) ([]standing, error) {
	all := make([]standing, len(owners))
	for i, r := range owners {
		gvk := schema.FromAPIVersionAndKind(r.APIVersion, r.Kind)
		k := c.kind(gvk)
		if k == nil {
			return nil, &unclearError{gvk}
		}
		if k.namespaced && x.namespace == "" {
			c.tellOfStray(x, r)
			return nil, nil
		}
		if c.graph.isElsewhere(r.UID, x.namespace) {
			c.tellOfStray(x, r)
		}
		at := place{r.APIVersion, r.Kind, "", r.Name}
		if k.namespaced {
			at.namespace = x.namespace
		}
		if c.graph.isMissing(r.UID, at) {
			all[i] = absent
			continue
		}
		m, err := c.objects.get(ctx, object{uid: r.UID, kind: k, namespace: at.namespace, name: r.Name})
		switch {
		case err != nil:
			return nil, fmt.Errorf("owner %s %s: %w", r.Kind, r.Name, err)
		case m == nil:
			c.graph.missing(r.UID, at)
			all[i] = absent
		case m.DeletionTimestamp != nil && has(m.Finalizers, metav1.FinalizerDeleteDependents):
			all[i] = awaiting
		}
	}
	return all, nil
}

func has(all []string, one string) bool {
	for _, s := range all {
		if s == one {
			return true
		}
	}
	return false
}

// orphan lets an object go whose dependents are to stay.
func (c *Collector) orphan(ctx context.Context, v view) error {
	var errs []error
	for _, d := range v.orphans {
		if err := c.objects.disown(ctx, d, v.uid); err != nil {
			errs = append(errs, fmt.Errorf("orphan %s %s/%s: %w", d.kind.gvk.Kind, d.namespace, d.name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return c.objects.release(ctx, v.object, metav1.FinalizerOrphanDependents)
}

// finish lets an object go whose dependents go first, when they have: the last one of them has it looked at. Of objects that own each other, and are all deleted
// so, the one with which the circle closes lets its owners go before it.
func (c *Collector) finish(ctx context.Context, v view) error {
	switch {
	case v.stuck:
		return c.objects.unblock(ctx, v.object)
	case v.waiting:
		return nil
	}
	return c.objects.release(ctx, v.object, metav1.FinalizerDeleteDependents)
}

// tellOfStray tells of an owner that cannot be, in upstream's words.
func (c *Collector) tellOfStray(x object, r metav1.OwnerReference) {
	c.config.Events.Eventf(&corev1.ObjectReference{Kind: x.kind.gvk.Kind, APIVersion: x.kind.gvk.GroupVersion().String(), Namespace: x.namespace, Name: x.name, UID: x.uid},
		corev1.EventTypeWarning, "OwnerRefInvalidNamespace", "ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
		r.APIVersion, r.Kind, x.namespace, r.Name, r.UID, x.namespace)
}

// quiet says that an error is an everyday race, which the next attempt wins.
func quiet(err error) bool { return apierrors.IsConflict(err) }
