package apiserver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// reader reads objects for the server's own decisions: who a token is for, whether somebody may. It needs no rights, and it takes no way but a function
// call. Its storages are opened later than whoever reads is made.
type reader struct{ server *Server }

// ServiceAccount reads a service account as the cache has it or, fresh, as it is in the store.
func (r reader) ServiceAccount(ctx context.Context, namespace, name string, fresh bool) (*corev1.ServiceAccount, error) {
	return read[*corev1.ServiceAccount](ctx, r, "serviceaccounts", namespace, name, fresh)
}

// Pod reads a pod.
func (r reader) Pod(ctx context.Context, namespace, name string, fresh bool) (*corev1.Pod, error) {
	return read[*corev1.Pod](ctx, r, "pods", namespace, name, fresh)
}

// Secret reads a secret.
func (r reader) Secret(ctx context.Context, namespace, name string, fresh bool) (*corev1.Secret, error) {
	return read[*corev1.Secret](ctx, r, "secrets", namespace, name, fresh)
}

// Node reads a node.
func (r reader) Node(ctx context.Context, name string, fresh bool) (*corev1.Node, error) {
	return read[*corev1.Node](ctx, r, "nodes", metav1.NamespaceNone, name, fresh)
}

// PodsOf are the pods of a node in a namespace, or in all, as the cache has them. They are found by an index.
func (r reader) PodsOf(ctx context.Context, node, namespace string) ([]corev1.Pod, error) {
	lister, ok := r.server.storages[corev1.SchemeGroupVersion]["pods"].(rest.Lister)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("pods cannot be listed"))
	}
	list, err := lister.List(genericrequest.WithNamespace(ctx, namespace), &metainternalversion.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node), ResourceVersion: fromCache,
	})
	if err != nil {
		return nil, err
	}
	pods, ok := list.(*corev1.PodList)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("the list of pods is a %T", list))
	}
	return pods.Items, nil
}

// EndpointSlices are those of a service, as they are in the store.
func (r reader) EndpointSlices(ctx context.Context, namespace, service string) ([]discoveryv1.EndpointSlice, error) {
	lister, ok := r.server.storages[discoveryv1.SchemeGroupVersion]["endpointslices"].(rest.Lister)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("endpoint slices cannot be listed"))
	}
	list, err := lister.List(genericrequest.WithNamespace(ctx, namespace), &metainternalversion.ListOptions{
		LabelSelector: labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service}),
	})
	if err != nil {
		return nil, err
	}
	slices, ok := list.(*discoveryv1.EndpointSliceList)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("the list of endpoint slices is a %T", list))
	}
	return slices.Items, nil
}

// fromCache is the resource version of whatever the cache has (Kubernetes API concepts: resourceVersion "0").
const fromCache = "0"

func read[T any](ctx context.Context, r reader, resource, namespace, name string, fresh bool) (T, error) {
	options := &metav1.GetOptions{ResourceVersion: fromCache}
	if fresh {
		options.ResourceVersion = ""
	}
	obj, err := storageOf{r.server, corev1.SchemeGroupVersion.WithResource(resource)}.Get(genericrequest.WithNamespace(ctx, namespace), name, options)
	var none T
	switch {
	case apierrors.IsNotFound(err):
		// The storage's own error would name the resource of the request.
		return none, apierrors.NewNotFound(corev1.Resource(resource), name)
	case err != nil:
		return none, err
	}
	typed, ok := obj.(T)
	if !ok {
		return none, apierrors.NewInternalError(fmt.Errorf("%s %s: the store holds a %T", resource, name, obj))
	}
	return typed, nil
}
