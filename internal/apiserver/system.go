package apiserver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/registry/namespace"
	"monopod.dev/monopod/internal/apiserver/registry/priorityclass"
	"monopod.dev/monopod/internal/apiserver/resource"
)

// makeSystem makes the objects that every cluster has, where they are missing.
func (r *resources) makeSystem(ctx context.Context) error {
	namespaces, err := resource.Find[rest.Creater](r.storages, corev1.SchemeGroupVersion, "namespaces")
	if err != nil {
		return err
	}
	if err := namespace.Create(ctx, namespaces, namespace.System()); err != nil {
		return err
	}
	classes, err := resource.Find[rest.Creater](r.storages, schedulingv1.SchemeGroupVersion, "priorityclasses")
	if err != nil {
		return err
	}
	everywhere := genericrequest.WithNamespace(ctx, "")
	for _, class := range priorityclass.System() {
		// The handlers of requests do this for the others' objects.
		rest.FillObjectMetaSystemFields(class)
		if _, err := classes.Create(everywhere, class, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make PriorityClass %q: %w", class.Name, err)
		}
	}
	if err := r.services.Start(everywhere); err != nil {
		return err
	}
	return r.makeAccounts(ctx, namespace.System())
}

// makeAccounts makes the service account that pods have who name none, where there is none yet. A controller keeps it in all namespaces; in those that
// the server makes, a pod can be created as soon as the server is ready.
func (r *resources) makeAccounts(ctx context.Context, namespaces []string) error {
	const name = "default"
	for _, ns := range namespaces {
		if _, err := r.objects.ServiceAccount(ctx, ns, name, false); err == nil {
			continue
		}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}}
		rest.FillObjectMetaSystemFields(account) // the handlers of requests do this for the others' objects
		inside := genericrequest.WithNamespace(ctx, ns)
		if _, err := r.objects.accounts.Create(inside, account, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make service account %s/%s: %w", ns, name, err)
		}
	}
	return nil
}
