package apiserver

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/resource"
)

// reader reads objects for the server's own decisions: who a token is for, whether somebody may. It needs no rights, and it takes no way but a function
// call.
type reader struct {
	accounts, pods, secrets, nodes, volumes, limitRanges, slices, certificates rest.StandardStorage
}

// newReader reads from storages that are open.
func newReader(all resource.Storages) (r reader, err error) {
	for _, of := range []struct {
		in   schema.GroupVersion
		path string
		to   *rest.StandardStorage
	}{
		{corev1.SchemeGroupVersion, "serviceaccounts", &r.accounts}, {corev1.SchemeGroupVersion, "pods", &r.pods}, {corev1.SchemeGroupVersion, "secrets", &r.secrets},
		{corev1.SchemeGroupVersion, "nodes", &r.nodes}, {corev1.SchemeGroupVersion, "persistentvolumes", &r.volumes}, {corev1.SchemeGroupVersion, "limitranges", &r.limitRanges},
		{discoveryv1.SchemeGroupVersion, "endpointslices", &r.slices}, {certificatesv1.SchemeGroupVersion, "podcertificaterequests", &r.certificates},
	} {
		if *of.to, err = resource.Find[rest.StandardStorage](all, of.in, of.path); err != nil {
			return r, err
		}
	}
	return r, nil
}

// ServiceAccount reads a service account as the cache has it or, fresh, as it is in the store.
func (r reader) ServiceAccount(ctx context.Context, namespace, name string, fresh bool) (*corev1.ServiceAccount, error) {
	return read[*corev1.ServiceAccount](ctx, r.accounts, "serviceaccounts", namespace, name, fresh)
}

// Pod reads a pod.
func (r reader) Pod(ctx context.Context, namespace, name string, fresh bool) (*corev1.Pod, error) {
	return read[*corev1.Pod](ctx, r.pods, "pods", namespace, name, fresh)
}

// Secret reads a secret.
func (r reader) Secret(ctx context.Context, namespace, name string, fresh bool) (*corev1.Secret, error) {
	return read[*corev1.Secret](ctx, r.secrets, "secrets", namespace, name, fresh)
}

// Node reads a node.
func (r reader) Node(ctx context.Context, name string, fresh bool) (*corev1.Node, error) {
	return read[*corev1.Node](ctx, r.nodes, "nodes", metav1.NamespaceNone, name, fresh)
}

// PersistentVolume reads a volume.
func (r reader) PersistentVolume(ctx context.Context, name string, fresh bool) (*corev1.PersistentVolume, error) {
	return read[*corev1.PersistentVolume](ctx, r.volumes, "persistentvolumes", metav1.NamespaceNone, name, fresh)
}

// PodCertificateRequest reads a request for the certificate of a pod.
func (r reader) PodCertificateRequest(ctx context.Context, namespace, name string, fresh bool) (*certificatesv1.PodCertificateRequest, error) {
	return read[*certificatesv1.PodCertificateRequest](ctx, r.certificates, "podcertificaterequests", namespace, name, fresh)
}

// PodsOf are the pods of a node in a namespace, or in all, as the cache has them. They are found by an index.
func (r reader) PodsOf(ctx context.Context, node, namespace string) ([]corev1.Pod, error) {
	pods, err := list[*corev1.PodList](ctx, r.pods, namespace, &metainternalversion.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node), ResourceVersion: fromCache,
	})
	if err != nil {
		return nil, err
	}
	return pods.Items, nil
}

// LimitRanges are those of a namespace, as the cache has them.
func (r reader) LimitRanges(ctx context.Context, namespace string) ([]corev1.LimitRange, error) {
	ranges, err := list[*corev1.LimitRangeList](ctx, r.limitRanges, namespace, &metainternalversion.ListOptions{
		ResourceVersion: fromCache,
	})
	if err != nil {
		return nil, err
	}
	return ranges.Items, nil
}

// Nodes are those that the options' selectors let through.
func (r reader) Nodes(ctx context.Context, options *metainternalversion.ListOptions) ([]corev1.Node, error) {
	nodes, err := list[*corev1.NodeList](ctx, r.nodes, metav1.NamespaceNone, options)
	if err != nil {
		return nil, err
	}
	return nodes.Items, nil
}

// Pods are those of a namespace, or of all, that the options' selectors let through.
func (r reader) Pods(ctx context.Context, namespace string, options *metainternalversion.ListOptions) ([]corev1.Pod, error) {
	pods, err := list[*corev1.PodList](ctx, r.pods, namespace, options)
	if err != nil {
		return nil, err
	}
	return pods.Items, nil
}

// EndpointSlices are those of a service, as they are in the store.
func (r reader) EndpointSlices(ctx context.Context, namespace, service string) ([]discoveryv1.EndpointSlice, error) {
	slices, err := list[*discoveryv1.EndpointSliceList](ctx, r.slices, namespace, &metainternalversion.ListOptions{
		LabelSelector: labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service}),
	})
	if err != nil {
		return nil, err
	}
	return slices.Items, nil
}

func list[L any](ctx context.Context, from rest.Lister, namespace string, options *metainternalversion.ListOptions) (L, error) {
	var none L
	all, err := from.List(genericrequest.WithNamespace(ctx, namespace), options)
	if err != nil {
		return none, err
	}
	typed, ok := all.(L)
	if !ok {
		return none, apierrors.NewInternalError(fmt.Errorf("the store holds a %T in the place of a %T", all, none))
	}
	return typed, nil
}

// fromCache is the resource version of whatever the cache has (Kubernetes API concepts: resourceVersion "0").
const fromCache = "0"

func read[T resource.Object](ctx context.Context, from rest.Getter, of, namespace, name string, fresh bool) (T, error) {
	options := &metav1.GetOptions{ResourceVersion: fromCache}
	if fresh {
		options.ResourceVersion = ""
	}
	obj, err := resource.Get[T](genericrequest.WithNamespace(ctx, namespace), from, of, name, options)
	if apierrors.IsNotFound(err) {
		// The storage's own error would name the resource of the request.
		err = apierrors.NewNotFound(corev1.Resource(of), name)
	}
	return obj, err
}
