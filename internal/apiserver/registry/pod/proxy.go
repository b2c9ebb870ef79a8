package pod

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/reach"
)

// ProxyREST serves pods/proxy: what a pod serves, at one of its ports.
type ProxyREST struct{ locator }

var _ rest.Connecter = &ProxyREST{}

// New implements rest.Storage.
func (*ProxyREST) New() runtime.Object { return &corev1.PodProxyOptions{} }

// Destroy implements rest.Storage. REST owns the store and destroys it.
func (*ProxyREST) Destroy() {}

// ConnectMethods implements rest.Connecter.
func (*ProxyREST) ConnectMethods() []string { return reach.ProxyMethods() }

// NewConnectOptions implements rest.Connecter.
func (*ProxyREST) NewConnectOptions() (runtime.Object, bool, string) {
	return &corev1.PodProxyOptions{}, true, "path"
}

// Connect implements rest.Connecter. Without a port in the name, the first one that a container names is meant.
func (r *ProxyREST) Connect(ctx context.Context, id string, options runtime.Object, responder rest.Responder) (http.Handler, error) {
	opts, ok := options.(*corev1.PodProxyOptions)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected PodProxyOptions, found %T", options))
	}
	name, to, err := reach.ParseBackend(id)
	if err != nil {
		return nil, err
	}
	pod, err := r.pod(ctx, name)
	if err != nil {
		return nil, err
	}
	if to.Port == "" {
		to.Port = firstPort(pod)
	}
	to.Path = opts.Path
	return r.agents.ProxyToPod(ctx, pod, to, responder)
}

// firstPort is the first port that an app container of a pod names, or "".
func firstPort(pod *corev1.Pod) string {
	for i := range pod.Spec.Containers {
		if ports := pod.Spec.Containers[i].Ports; len(ports) > 0 {
			return strconv.Itoa(int(ports[0].ContainerPort))
		}
	}
	return ""
}
