package node

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/streaming/pkg/httpstream"

	"monopod.dev/monopod/internal/apiserver/reach"
)

// Proxy leads to nodes.
type Proxy interface {
	// ProxyToNode serves what the node serves. Its error is an API error and is shown to the client.
	ProxyToNode(ctx context.Context, nodeName string, to reach.Backend, responder rest.Responder) (http.Handler, error)
}

// ProxyREST serves nodes/proxy.
type ProxyREST struct {
	proxy      Proxy
	authorizer authorizer.UnconditionalAuthorizer
}

var _ rest.Connecter = &ProxyREST{}

// NewProxy makes the storage of nodes/proxy. The authorizer is that of the server: some requests need more than their own
// verb.
func NewProxy(proxy Proxy, a authorizer.UnconditionalAuthorizer) *ProxyREST {
	return &ProxyREST{proxy: proxy, authorizer: a}
}

// New implements rest.Storage.
func (*ProxyREST) New() runtime.Object { return &corev1.NodeProxyOptions{} }

// Destroy implements rest.Storage. It has nothing of its own.
func (*ProxyREST) Destroy() {}

// ConnectMethods implements rest.Connecter.
func (*ProxyREST) ConnectMethods() []string { return reach.ProxyMethods() }

// NewConnectOptions implements rest.Connecter.
func (*ProxyREST) NewConnectOptions() (runtime.Object, bool, string) {
	return &corev1.NodeProxyOptions{}, true, "path"
}

// Connect implements rest.Connecter. The agent takes an upgraded request for an exec or a port-forward, by any method, and
// asks no more who is behind the API server: so it needs the verb create here, as it does of a pod.
func (r *ProxyREST) Connect(ctx context.Context, id string, options runtime.Object, responder rest.Responder) (http.Handler, error) {
	opts, ok := options.(*corev1.NodeProxyOptions)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected NodeProxyOptions, found %T", options))
	}
	name, to, err := reach.ParseBackend(id)
	if err != nil {
		return nil, err
	}
	to.Path = opts.Path
	handler, err := r.proxy.ProxyToNode(ctx, name, to, responder)
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if httpstream.IsUpgradeRequest(req) {
			if err := reach.PermitCreate(ctx, r.authorizer); err != nil {
				responder.Error(err)
				return
			}
		}
		handler.ServeHTTP(w, req)
	}), nil
}

// AddOptions registers the conversion that reads the options of nodes/proxy from a request's query.
func AddOptions(scheme *runtime.Scheme) error {
	return scheme.AddConversionFunc((*url.Values)(nil), (*corev1.NodeProxyOptions)(nil), func(from, to any, _ conversion.Scope) error {
		to.(*corev1.NodeProxyOptions).Path = from.(*url.Values).Get("path")
		return nil
	})
}
