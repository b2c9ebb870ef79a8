package reach

import (
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/registry/rest"
	streamproxy "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// A stream hands an upgraded connection through to the agent. What the client speaks decides how:
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

// Exec serves the execution of a command in a pod's container. What goes wrong on the way is told to responder.
func (a Agent) Exec(pod *corev1.Pod, container string, o *corev1.PodExecOptions, responder rest.Responder) http.Handler {
	to := a.at(streamQuery(o.Stdin, o.Stdout, o.Stderr, o.TTY, o.Command), "exec", pod.Namespace, pod.Name, container)
	return to.remoteCommand(responder, streamproxy.Options{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY})
}

// Attach serves the streams of a pod's container that runs.
func (a Agent) Attach(pod *corev1.Pod, container string, o *corev1.PodAttachOptions, responder rest.Responder) http.Handler {
	to := a.at(streamQuery(o.Stdin, o.Stdout, o.Stderr, o.TTY, nil), "attach", pod.Namespace, pod.Name, container)
	return to.remoteCommand(responder, streamproxy.Options{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY})
}

// PortForward serves connections to ports of a pod.
func (a Agent) PortForward(pod *corev1.Pod, o *corev1.PodPortForwardOptions, responder rest.Responder) http.Handler {
	through := a.at(portQuery(o.Ports), "portForward", pod.Namespace, pod.Name).passThrough(responder)
	return streamproxy.NewTranslatingHandler(through, streamproxy.NewTunnelingHandler(through),
		wsstream.IsWebSocketRequestWithTunnelingProtocol)
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
