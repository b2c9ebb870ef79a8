package garbage

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
)

// objects is the API as it is asked about single objects.
type objects struct{ client metadata.Interface }

func (o objects) of(k *kind, namespace string) metadata.ResourceInterface {
	if !k.namespaced {
		return o.client.Resource(k.gvr)
	}
	return o.client.Resource(k.gvr).Namespace(namespace)
}

// get returns an object as it is now; nil: it has gone, whoever has its name.
func (o objects) get(ctx context.Context, x object) (*metav1.PartialObjectMetadata, error) {
	m, err := o.of(x.kind, x.namespace).Get(ctx, x.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && m.UID != x.uid:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return m, nil
}

// remove deletes an object as it was seen, and no other one of its name, nor one that has other owners meanwhile.
func (o objects) remove(ctx context.Context, x object, seen *metav1.PartialObjectMetadata, policy metav1.DeletionPropagation) error {
	err := o.of(x.kind, x.namespace).Delete(ctx, x.name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &x.uid, ResourceVersion: &seen.ResourceVersion}, PropagationPolicy: &policy,
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}

// attempts is how often a change of an object is tried that others change at the same time, before it goes back in line.
const attempts = 5

// change writes what of an object's metadata is to be otherwise, by the names of the fields; nil: nothing. It may be called again with a later version.
func (o objects) change(ctx context.Context, x object, otherwise func(*metav1.PartialObjectMetadata) map[string]any) error {
	for n := 1; ; n++ {
		m, err := o.get(ctx, x)
		if err != nil || m == nil {
			return err
		}
		fields := otherwise(m)
		if fields == nil {
			return nil
		}
		fields["resourceVersion"], fields["uid"] = m.ResourceVersion, m.UID
		patch, err := json.Marshal(map[string]any{"metadata": fields})
		if err != nil {
			return err
		}
		_, err = o.of(x.kind, x.namespace).Patch(ctx, x.name, types.MergePatchType, patch, metav1.PatchOptions{})
		switch {
		case err == nil, apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err) || n == attempts:
			return fmt.Errorf("patch: %w", err)
		}
	}
}

// release takes a finalizer off.
func (o objects) release(ctx context.Context, x object, finalizer string) error {
	return o.change(ctx, x, func(m *metav1.PartialObjectMetadata) map[string]any {
		var left []string
		for _, f := range m.Finalizers {
			if f != finalizer {
				left = append(left, f)
			}
		}
		if len(left) == len(m.Finalizers) {
			return nil
		}
		return map[string]any{"finalizers": left}
	})
}

// disown takes owners off an object.
func (o objects) disown(ctx context.Context, x object, owners ...types.UID) error {
	gone := map[types.UID]bool{}
	for _, uid := range owners {
		gone[uid] = true
	}
	return o.change(ctx, x, func(m *metav1.PartialObjectMetadata) map[string]any {
		var left []metav1.OwnerReference
		for _, r := range m.OwnerReferences {
			if !gone[r.UID] {
				left = append(left, r)
			}
		}
		if len(left) == len(m.OwnerReferences) {
			return nil
		}
		return map[string]any{"ownerReferences": left}
	})
}

// unblock has nobody's deletion wait for an object any more.
func (o objects) unblock(ctx context.Context, x object) error {
	no := false
	return o.change(ctx, x, func(m *metav1.PartialObjectMetadata) map[string]any {
		changed := false
		for i := range m.OwnerReferences {
			if b := m.OwnerReferences[i].BlockOwnerDeletion; b != nil && *b {
				m.OwnerReferences[i].BlockOwnerDeletion, changed = &no, true
			}
		}
		if !changed {
			return nil
		}
		return map[string]any{"ownerReferences": m.OwnerReferences}
	})
}
