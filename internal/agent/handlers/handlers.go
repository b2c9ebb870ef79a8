// Package handlers carries out once what a probe or a lifecycle hook of a container names: a command in it (exec), an HTTP request (httpGet), a
// connection (tcpSocket), a health check (grpc) or a wait (sleep).
//
// What is asked, how it is judged and the words of the answers are a kubelet's. It guarantees that an attempt ends with its time limit or its
// context, that nothing of it is left then (no connection, no goroutine), and that what a container answers takes bounded memory. It does not
// decide when something is asked, nor what follows from an answer.
package handlers

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/version"

	"monopod.dev/monopod/internal/kit/ids"
)

// MaxOutput is how much of what a container answers is kept, in bytes.
const MaxOutput = 10 << 10

// Subject is the container that a probe or a hook is about.
type Subject struct {
	Pod       *v1.Pod
	Container *v1.Container
	// ID is the container's at the runtime.
	ID ids.ContainerID
	// IP is the pod's first address, the host's of a pod with hostNetwork: where is asked when the handler names no host.
	IP string
}

// Result is how an attempt ended.
type Result int

// What an attempt can end with. Of Unknown it could not be asked: that says nothing about the container.
const (
	Unknown Result = iota
	Success
	Warning
	Failure
)

// Answer is the end of an attempt.
type Answer struct {
	Result Result
	// Output is what an event says of it: what the container answered, why that is a failure, or why nothing could be asked. At most about
	// MaxOutput bytes.
	Output string
}

// Executor runs a command in a container to its end. A timeout of 0 is none. What has not ended by then is killed, and the error's class is
// context.DeadlineExceeded; any other error means that the command could not be run.
type Executor interface {
	ExecSync(ctx context.Context, containerID ids.ContainerID, cmd []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error)
}

// Handlers is safe for concurrent use.
type Handlers struct {
	exec Executor
	web  web
	// version is the version of Kubernetes that user agents name.
	version string
}

// New makes the handlers, with commands run by exec.
func New(exec Executor) *Handlers {
	return &Handlers{exec: exec, web: newWeb(), version: version.DefaultKubeBinaryVersion}
}

// Probe asks what a probe asks, once, for at most the timeout.
func (h *Handlers) Probe(ctx context.Context, on Subject, what *v1.ProbeHandler, timeout time.Duration) Answer {
	switch {
	case what.Exec != nil:
		return h.probeExec(ctx, on, what.Exec, timeout)
	case what.HTTPGet != nil:
		return h.probeHTTP(ctx, on, what.HTTPGet, timeout)
	case what.TCPSocket != nil:
		return probeTCP(ctx, on, what.TCPSocket, timeout)
	case what.GRPC != nil:
		return h.probeGRPC(ctx, on, what.GRPC, timeout)
	}
	return Answer{Unknown, "missing probe handler for " + podName(on.Pod) + ":" + on.Container.Name}
}

// podName names a pod as a kubelet's messages do.
func podName(pod *v1.Pod) string { return pod.Name + "_" + pod.Namespace + "(" + string(pod.UID) + ")" }
