package namespace

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// System are the namespaces that always exist: users' default, the system's own, what everybody may read of it, and that of nodes' leases.
func System() []string {
	return []string{corev1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}
}

// Create makes the given namespaces, where they do not exist yet.
func Create(ctx context.Context, storage rest.Creater, names []string) error {
	ctx = genericrequest.WithNamespace(ctx, "")
	for _, name := range names {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		// The handlers of requests do this for the others' objects.
		rest.FillObjectMetaSystemFields(ns)
		if _, err := storage.Create(ctx, ns, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make namespace %q: %w", name, err)
		}
	}
	return nil
}
