package pod

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/registry/rest"
	streamproxy "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// The streaming subresources hand an upgraded connection through to the agent. What the client speaks decides how:
//
//	client                        what happens                                             agent sees
//	SPDY/3.1                      bytes are copied                                         SPDY/3.1
//	WebSocket v5 (exec, attach)   streams are translated one by one                        SPDY/3.1
//	WebSocket tunnel (forward)    SPDY frames are taken out of the WebSocket's messages    SPDY/3.1
//	WebSocket, older protocols    bytes are copied                                         WebSocket
//
// so an agent that knows SPDY alone serves every kubectl from 1.0 to today's.

// unlimited: no rate is imposed on streams.
const unlimited = 0

// connector is what the streaming storages have in common.
type connector struct{}

// Destroy implements rest.Storage. REST owns the store and destroys it.
func (connector) Destroy() {}

// ConnectMethods implements rest.Connecter. WebSocket clients upgrade a GET, SPDY clients a POST.
func (connector) ConnectMethods() []string { return []string{http.MethodGet, http.MethodPost} }

// ExecREST serves pods/exec.
type ExecREST struct {
	connector
	locator locator
}

// AttachREST serves pods/attach.
type AttachREST struct {
	connector
	locator locator
}

// PortForwardREST serves pods/portforward.
type PortForwardREST struct {
	connector
	locator locator
}

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
	opts, ok := options.(*corev1.PodExecOptions)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected PodExecOptions, found %T", options))
	}
	if len(opts.Command) == 0 {
		return nil, apierrors.NewBadRequest("you must specify at least one command for the container")
	}
	query := streamQuery(opts.Stdin, opts.Stdout, opts.Stderr, opts.TTY, opts.Command)
	to, err := r.locator.stream(ctx, name, "exec", opts.Container, query)
	if err != nil {
		return nil, err
	}
	return to.remoteCommand(responder, streamproxy.Options{
		Stdin: opts.Stdin, Stdout: opts.Stdout, Stderr: opts.Stderr, Tty: opts.TTY,
	}), nil
}

// New implements rest.Storage.
func (*AttachREST) New() runtime.Object { return &corev1.PodAttachOptions{} }

// NewConnectOptions implements rest.Connecter.
func (*AttachREST) NewConnectOptions() (runtime.Object, bool, string) {
	return &corev1.PodAttachOptions{}, false, ""
}

// Connect implements rest.Connecter.
func (r *AttachREST) Connect(ctx context.Context, name string, options runtime.Object, responder rest.Responder) (http.Handler, error) {
	opts, ok := options.(*corev1.PodAttachOptions)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected PodAttachOptions, found %T", options))
	}
	query := streamQuery(opts.Stdin, opts.Stdout, opts.Stderr, opts.TTY, nil)
	to, err := r.locator.stream(ctx, name, "attach", opts.Container, query)
	if err != nil {
		return nil, err
	}
	return to.remoteCommand(responder, streamproxy.Options{
		Stdin: opts.Stdin, Stdout: opts.Stdout, Stderr: opts.Stderr, Tty: opts.TTY,
	}), nil
}

// New implements rest.Storage.
func (*PortForwardREST) New() runtime.Object { return &corev1.PodPortForwardOptions{} }

// NewConnectOptions implements rest.Connecter.
func (*PortForwardREST) NewConnectOptions() (runtime.Object, bool, string) {
	return &corev1.PodPortForwardOptions{}, false, ""
}

// Connect implements rest.Connecter.
func (r *PortForwardREST) Connect(ctx context.Context, name string, options runtime.Object, responder rest.Responder) (http.Handler, error) {
	opts, ok := options.(*corev1.PodPortForwardOptions)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected PodPortForwardOptions, found %T", options))
	}
	pod, err := r.locator.pod(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := requireNode(pod); err != nil {
		return nil, err
	}
	query := url.Values{}
	for _, port := range opts.Ports {
		query.Add("port", fmt.Sprint(port))
	}
	to, err := r.locator.agentURL(ctx, pod, query, "portForward", pod.Namespace, pod.Name)
	if err != nil {
		return nil, err
	}
	through := to.passThrough(responder)
	return streamproxy.NewTranslatingHandler(through, streamproxy.NewTunnelingHandler(through),
		wsstream.IsWebSocketRequestWithTunnelingProtocol), nil
}

// passThrough copies an upgraded connection's bytes in both directions.
func (t target) passThrough(responder rest.Responder) *proxy.UpgradeAwareHandler {
	handler := proxy.NewUpgradeAwareHandler(t.location, t.transport, false, true, proxy.NewErrorResponder(responder))
	handler.MaxBytesPerSec = unlimited
	return handler
}

// remoteCommand serves an exec or an attach.
func (t target) remoteCommand(responder rest.Responder, streams streamproxy.Options) http.Handler {
	translate := streamproxy.NewStreamTranslatorHandler(t.location, t.transport, unlimited, streams)
	return streamproxy.NewTranslatingHandler(t.passThrough(responder), translate,
		wsstream.IsWebSocketRequestWithStreamCloseProtocol)
}
