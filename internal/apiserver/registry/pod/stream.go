package pod

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/reach"
)

// connector is what the streaming storages have in common.
type connector struct {
	locator
	authorizer authorizer.UnconditionalAuthorizer
}

// Destroy implements rest.Storage. REST owns the store and destroys it.
func (connector) Destroy() {}

// ConnectMethods implements rest.Connecter. WebSocket clients upgrade a GET, SPDY clients a POST.
func (connector) ConnectMethods() []string { return []string{http.MethodGet, http.MethodPost} }

// ExecREST serves pods/exec.
type ExecREST struct{ connector }

// AttachREST serves pods/attach.
type AttachREST struct{ connector }

// PortForwardREST serves pods/portforward.
type PortForwardREST struct{ connector }

var (
	_ rest.Connecter = &ExecREST{}
	_ rest.Connecter = &AttachREST{}
	_ rest.Connecter = &PortForwardREST{}
)

// New implements rest.Storage.
func (*ExecREST) New() runtime.Object { return &corev1.PodExecOptions{} }

// NewConnectOptions implements rest.Connecter.
func (*ExecREST) NewConnectOptions() (runtime.Object, bool, string) {
	return &corev1.PodExecOptions{}, false, ""
}

// Connect implements rest.Connecter.
func (r *ExecREST) Connect(ctx context.Context, name string, options runtime.Object, responder rest.Responder) (http.Handler, error) {
	if err := reach.PermitCreate(ctx, r.authorizer); err != nil {
		return nil, err
	}
	opts, ok := options.(*corev1.PodExecOptions)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected PodExecOptions, found %T", options))
	}
	if len(opts.Command) == 0 {
		return nil, apierrors.NewBadRequest("you must specify at least one command for the container")
	}
	pod, container, agent, err := r.container(ctx, name, opts.Container)
	if err != nil {
		return nil, err
	}
	return agent.Exec(pod, container, opts, responder), nil
}

// New implements rest.Storage.
func (*AttachREST) New() runtime.Object { return &corev1.PodAttachOptions{} }

// NewConnectOptions implements rest.Connecter.
func (*AttachREST) NewConnectOptions() (runtime.Object, bool, string) {
	return &corev1.PodAttachOptions{}, false, ""
}

// Connect implements rest.Connecter.
func (r *AttachREST) Connect(ctx context.Context, name string, options runtime.Object, responder rest.Responder) (http.Handler, error) {
	if err := reach.PermitCreate(ctx, r.authorizer); err != nil {
		return nil, err
	}
	opts, ok := options.(*corev1.PodAttachOptions)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected PodAttachOptions, found %T", options))
	}
	pod, container, agent, err := r.container(ctx, name, opts.Container)
	if err != nil {
		return nil, err
	}
	return agent.Attach(pod, container, opts, responder), nil
}

// New implements rest.Storage.
func (*PortForwardREST) New() runtime.Object { return &corev1.PodPortForwardOptions{} }

// NewConnectOptions implements rest.Connecter.
func (*PortForwardREST) NewConnectOptions() (runtime.Object, bool, string) {
	return &corev1.PodPortForwardOptions{}, false, ""
}

// Connect implements rest.Connecter.
func (r *PortForwardREST) Connect(ctx context.Context, name string, options runtime.Object, responder rest.Responder) (http.Handler, error) {
	if err := reach.PermitCreate(ctx, r.authorizer); err != nil {
		return nil, err
	}
	opts, ok := options.(*corev1.PodPortForwardOptions)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected PodPortForwardOptions, found %T", options))
	}
	pod, err := r.pod(ctx, name)
	if err != nil {
		return nil, err
	}
	agent, err := r.agent(ctx, pod)
	if err != nil {
		return nil, err
	}
	return agent.PortForward(pod, opts, responder), nil
}
