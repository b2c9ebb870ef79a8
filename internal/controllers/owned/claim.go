package owned

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Claims is what an owner does about dependents.
type Claims[T metav1.Object] struct {
	// Mine are the owner's, and stay so. Adopt has none yet and is to become the owner's, Release is the owner's and is not to be.
	Mine, Adopt, Release []T
}

// Claim says whose dependents are. An owner has those that refer to it and that its selector matches; it takes over those that nobody has, and lets go
// those that do not match any more. What is being deleted changes hands no more, and an owner that is being deleted takes over nothing.
func Claim[T metav1.Object](owner metav1.Object, selector labels.Selector, dependents []T) Claims[T] {
	return ClaimThose(owner, func(d T) bool { return selector.Matches(labels.Set(d.GetLabels())) }, dependents)
}

// ClaimThose is Claim where more than a selector says which dependents are an owner's.
func ClaimThose[T metav1.Object](owner metav1.Object, are func(T) bool, dependents []T) (c Claims[T]) {
	leaving := owner.GetDeletionTimestamp() != nil
	for _, d := range dependents {
		matches := are(d)
		of := metav1.GetControllerOfNoCopy(d)
		switch {
		case of == nil:
			if matches && !leaving && d.GetDeletionTimestamp() == nil && d.GetNamespace() == owner.GetNamespace() {
				c.Adopt = append(c.Adopt, d)
			}
		case of.UID != owner.GetUID():
		case matches:
			c.Mine = append(c.Mine, d)
		case !leaving && d.GetDeletionTimestamp() == nil:
			c.Release = append(c.Release, d)
		}
	}
	return c
}

// Claimer carries claims out.
type Claimer[T metav1.Object] struct {
	// Kind is that of the owner.
	Kind schema.GroupVersionKind
	// Finalizer is one that dependents have for as long as they are the owner's; empty: there is none.
	Finalizer string
	// Live reads the owner from the API server, not from a cache.
	Live func(ctx context.Context) (metav1.Object, error)
	// Patch patches a dependent.
	Patch func(ctx context.Context, name string, kind types.PatchType, data []byte) (T, error)
	// Wrote is told of the version of a dependent that was changed.
	Wrote func(version string)
}

// Claim returns the dependents that are the owner's, as they are when those that are to change hands have.
func (c Claimer[T]) Claim(ctx context.Context, owner metav1.Object, claims Claims[T]) ([]T, error) {
	mine := claims.Mine
	if len(claims.Adopt) > 0 {
		// The cache may not know yet that the owner is being deleted, or is another one of its name: what it adopted then would be deleted with it.
		live, err := c.Live(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s %s/%s, which is about to adopt: %w", c.Kind.Kind, owner.GetNamespace(), owner.GetName(), err)
		}
		if live.GetUID() != owner.GetUID() || live.GetDeletionTimestamp() != nil {
			return nil, fmt.Errorf("%s %s/%s is not there any more, or is being deleted: it adopts nothing", c.Kind.Kind, owner.GetNamespace(), owner.GetName())
		}
	}
	for _, dependent := range claims.Adopt {
		adopted, err := c.patch(ctx, dependent, c.adoption(metav1.NewControllerRef(owner, c.Kind), dependent.GetUID()))
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("adopt %s/%s: %w", dependent.GetNamespace(), dependent.GetName(), err)
		default:
			mine = append(mine, adopted)
		}
	}
	for _, dependent := range claims.Release {
		// Invalid: it has another UID, or is not the owner's any more.
		if _, err := c.patch(ctx, dependent, c.release(owner.GetUID(), dependent.GetUID())); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) {
			return nil, fmt.Errorf("release %s/%s: %w", dependent.GetNamespace(), dependent.GetName(), err)
		}
	}
	return mine, nil
}

func (c Claimer[T]) patch(ctx context.Context, dependent T, change any) (T, error) {
	data, err := json.Marshal(change)
	if err != nil {
		return dependent, err
	}
	changed, err := c.Patch(ctx, dependent.GetName(), types.StrategicMergePatchType, data)
	if err != nil {
		return dependent, err
	}
	c.Wrote(changed.GetResourceVersion())
	return changed, nil
}

// The patches name the dependent's UID, so that they change no other one of its name.

func (c Claimer[T]) adoption(owner *metav1.OwnerReference, uid types.UID) any {
	change := map[string]any{"uid": uid, "ownerReferences": []any{owner}}
	if c.Finalizer != "" {
		change["finalizers"] = []string{c.Finalizer}
	}
	return map[string]any{"metadata": change}
}

func (c Claimer[T]) release(owner, uid types.UID) any {
	change := map[string]any{"uid": uid, "ownerReferences": []any{map[string]any{"$patch": "delete", "uid": owner}}}
	if c.Finalizer != "" {
		change["$deleteFromPrimitiveList/finalizers"] = []string{c.Finalizer}
	}
	return map[string]any{"metadata": change}
}
