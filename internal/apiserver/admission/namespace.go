// Package admission holds the checks that a change of any object passes, beside those of its own resource.
package admission

import (
	"context"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

// NamespaceGetter reads a namespace as it is in the store, not as a cache may still have it.
type NamespaceGetter interface {
	Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error)
}

// Namespaces refuses to create objects in namespaces that do not exist or are being deleted, and to delete the
// namespaces that the system needs. It comes before all others, so that nobody looks for anything in a namespace that is not there. What is done to an object
// that there is (a pod is evicted, a token of a service account made) goes on while its namespace is being deleted.
type Namespaces struct {
	// Getter reads namespaces.
	Getter NamespaceGetter
	// Immortal are the names that may not be deleted.
	Immortal []string
}

var (
	_ admission.MutationInterface   = Namespaces{}
	_ admission.ValidationInterface = Namespaces{}
)

var namespaces = corev1.Resource("namespaces")

// Handles implements admission.Interface.
func (Namespaces) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Delete
}

// Admit implements admission.MutationInterface: as the cache has the namespace, and only if that is no reason to go on as it is in the store.
func (n Namespaces) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	resource := a.GetResource().GroupResource()
	if a.GetOperation() != admission.Create || outside(a, resource) {
		return nil
	}
	if obj, err := n.Getter.Get(ctx, a.GetNamespace(), &metav1.GetOptions{ResourceVersion: "0"}); err == nil {
		if ns, err := meta.Accessor(obj); err == nil && (ns.GetDeletionTimestamp() == nil || a.GetSubresource() != "") {
			return nil
		}
	}
	err := n.check(ctx, a, resource)
	if a.GetSubresource() != "" && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}

// outside says that a request is about no object in a namespace, or a question about what is in one.
func outside(a admission.Attributes, resource schema.GroupResource) bool {
	return a.GetNamespace() == "" || resource == namespaces || resource.Group == authorizationv1.GroupName
}

// Validate implements admission.ValidationInterface. It runs just before an object is stored, so that little can happen
// to the namespace between the check and the write.
func (n Namespaces) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	resource := a.GetResource().GroupResource()
	switch {
	case a.GetSubresource() != "":
		return nil
	case a.GetOperation() == admission.Delete:
		if resource == namespaces && slices.Contains(n.Immortal, a.GetName()) {
			return apierrors.NewForbidden(resource, a.GetName(), fmt.Errorf("this namespace may not be deleted"))
		}
		return nil
	case outside(a, resource):
		return nil
	}
	return n.check(ctx, a, resource)
}

func (n Namespaces) check(ctx context.Context, a admission.Attributes, resource schema.GroupResource) error {
	obj, err := n.Getter.Get(ctx, a.GetNamespace(), &metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		// The getter's own error would name the resource of the request.
		return apierrors.NewNotFound(namespaces, a.GetNamespace())
	}
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("read namespace %q: %w", a.GetNamespace(), err))
	}
	ns, err := meta.Accessor(obj)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if ns.GetDeletionTimestamp() == nil {
		return nil
	}
	refusal := apierrors.NewForbidden(resource, a.GetName(),
		fmt.Errorf("unable to create new content in namespace %s because it is being terminated", a.GetNamespace()))
	refusal.ErrStatus.Details.Causes = append(refusal.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    corev1.NamespaceTerminatingCause,
		Message: fmt.Sprintf("namespace %s is being terminated", a.GetNamespace()),
		Field:   "metadata.namespace",
	})
	return refusal
}
