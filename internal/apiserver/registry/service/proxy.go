package service

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/reach"
	"monopod.dev/monopod/internal/apiserver/resource"
)

// Backends finds what is behind services, and leads there. All errors are API errors and are shown to clients.
type Backends interface {
	// EndpointSlices are those of a service.
	EndpointSlices(ctx context.Context, namespace, service string) ([]discoveryv1.EndpointSlice, error)
	// Pod reads a pod as the cache has it or, fresh, as it is in the store.
	Pod(ctx context.Context, namespace, name string, fresh bool) (*corev1.Pod, error)
	// ProxyToPodAt serves what a pod serves at one of its addresses. NotFound or BadRequest is the error when that is none, or may not be dialled.
	ProxyToPodAt(ctx context.Context, pod *corev1.Pod, at string, to reach.Backend, responder rest.Responder) (http.Handler, error)
}

// ProxyTo is the subresource proxy, which leads to what is behind services. Whoever may read services does not see by that what they serve.
func ProxyTo(services rest.Getter, behind Backends) resource.Resource {
	const path = "services/proxy"
	return resource.PartOf(corev1.SchemeGroupVersion.WithResource("services"), map[string]rest.Storage{path: &ProxyREST{services: services, behind: behind}},
		resource.Right{Role: resource.Editor, Group: corev1.GroupName, Resource: path, Verbs: resource.ReadVerbs},
		resource.Right{Role: resource.Editor, Group: corev1.GroupName, Resource: path, Verbs: resource.WriteVerbs})
}

// ProxyREST serves services/proxy: what one of the pods behind a service serves, at one of the service's ports.
type ProxyREST struct {
	services rest.Getter
	behind   Backends
}

var _ rest.Connecter = &ProxyREST{}

// New implements rest.Storage.
func (*ProxyREST) New() runtime.Object { return &corev1.ServiceProxyOptions{} }

// Destroy implements rest.Storage. REST owns the store and destroys it.
func (*ProxyREST) Destroy() {}

// ConnectMethods implements rest.Connecter.
func (*ProxyREST) ConnectMethods() []string { return reach.ProxyMethods() }

// NewConnectOptions implements rest.Connecter.
func (*ProxyREST) NewConnectOptions() (runtime.Object, bool, string) {
	return &corev1.ServiceProxyOptions{}, true, "path"
}

// Connect implements rest.Connecter. A service is no address: each request goes to any one of its ready endpoints. Who may write endpoints must not make
// the API server dial what they write, so an endpoint counts only as the address of a pod in the service's namespace, which that pod must have.
func (r *ProxyREST) Connect(ctx context.Context, id string, options runtime.Object, responder rest.Responder) (http.Handler, error) {
	opts, ok := options.(*corev1.ServiceProxyOptions)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected ServiceProxyOptions, found %T", options))
	}
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(id)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid service request %q: it must be NAME, NAME:PORT, or SCHEME:NAME:PORT with the scheme http or https", id))
	}
	svc, err := resource.Get[*corev1.Service](ctx, r.services, "service", name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return nil, noEndpoints(id, []string{fmt.Sprintf("it stands for another name (%s)", svc.Spec.ExternalName)})
	}
	port, err = portNamed(svc, port)
	if err != nil {
		return nil, err
	}
	behind, err := r.behind.EndpointSlices(ctx, svc.Namespace, name)
	if err != nil {
		return nil, err
	}
	var refused []string
	for _, e := range ready(svc, behind, port) {
		handler, err := r.to(ctx, svc.Namespace, e, reach.Backend{Scheme: scheme, Port: e.port, Path: opts.Path}, responder)
		switch {
		case err == nil:
			return handler, nil
		case !apierrors.IsBadRequest(err) && !apierrors.IsNotFound(err):
			return nil, err // it is not the endpoint's fault
		}
		refused = append(refused, err.Error())
	}
	return nil, noEndpoints(id, refused)
}

// to leads to an endpoint.
func (r *ProxyREST) to(ctx context.Context, namespace string, e endpoint, backend reach.Backend, responder rest.Responder) (http.Handler, error) {
	if e.pod == nil || e.pod.Kind != "Pod" || e.pod.Namespace != namespace || e.pod.Name == "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("address not allowed: %s is not said to be of a pod in namespace %s (targetRef)", e.address, namespace))
	}
	pod, err := r.behind.Pod(ctx, namespace, e.pod.Name, true)
	if err != nil {
		return nil, err
	}
	return r.behind.ProxyToPodAt(ctx, pod, e.address, backend, responder)
}

// AddOptions registers the conversion that reads the options of services/proxy from a request's query.
func AddOptions(scheme *runtime.Scheme) error {
	return scheme.AddConversionFunc((*url.Values)(nil), (*corev1.ServiceProxyOptions)(nil), func(from, to any, _ conversion.Scope) error {
		to.(*corev1.ServiceProxyOptions).Path = from.(*url.Values).Get("path")
		return nil
	})
}
