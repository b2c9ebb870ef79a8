package pod

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Connection is the way to the HTTPS API of one node's agent.
type Connection struct {
	// Scheme is "https" (or "http" in tests).
	Scheme string
	// Host is a name or an address without port; Port is decimal.
	Host, Port string
	// Transport authenticates the API server to the agent and the agent to the API server. For streams its
	// *tls.Config and its dialer are used with HTTP/1.1, whatever protocols it would negotiate itself.
	Transport http.RoundTripper
}

// ConnectionInfo finds the agents of nodes.
type ConnectionInfo interface {
	// AgentConnection returns the way to the agent of the named node. Its error is an API error (NotFound for a node
	// that does not exist, ServiceUnavailable for one that has published no address) and is shown to the client.
	AgentConnection(ctx context.Context, nodeName string) (Connection, error)
}

// locator turns a request for a subresource of a pod into the URL of the agent that can answer it.
type locator struct {
	pods   rest.Getter
	agents ConnectionInfo
}

// target is what a streaming request is about, resolved.
type target struct {
	location  *url.URL
	transport http.RoundTripper
}

func (l locator) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	obj, err := l.pods.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("pod %s: the store holds a %T", name, obj))
	}
	return pod, nil
}

// agentURL returns the URL of a path of the kubelet's API on the pod's node.
func (l locator) agentURL(ctx context.Context, pod *corev1.Pod, query url.Values, elements ...string) (target, error) {
	conn, err := l.agents.AgentConnection(ctx, pod.Spec.NodeName)
	if err != nil {
		return target{}, err
	}
	return target{
		location: &url.URL{
			Scheme:   conn.Scheme,
			Host:     net.JoinHostPort(conn.Host, conn.Port),
			Path:     path.Join(append([]string{"/"}, elements...)...),
			RawQuery: query.Encode(),
		},
		transport: conn.Transport,
	}, nil
}

// stream locates an exec or an attach: verb is the first element of the agent's path.
func (l locator) stream(ctx context.Context, name, verb, container string, query url.Values) (target, error) {
	pod, err := l.pod(ctx, name)
	if err != nil {
		return target{}, err
	}
	container, err = chooseContainer(pod, container)
	if err != nil {
		return target{}, err
	}
	if err := requireNode(pod); err != nil {
		return target{}, err
	}
	return l.agentURL(ctx, pod, query, verb, pod.Namespace, pod.Name, container)
}

func requireNode(pod *corev1.Pod) error {
	if pod.Spec.NodeName == "" {
		return apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", pod.Name))
	}
	return nil
}

// chooseContainer returns the name of the container that is meant: the named one, which must exist, or the only one.
func chooseContainer(pod *corev1.Pod, name string) (string, error) {
	names, inits := containerNames(pod.Spec.Containers), containerNames(pod.Spec.InitContainers)
	if name == "" {
		switch {
		case len(names) == 1 && len(inits) == 0:
			return names[0], nil
		case len(inits) > 0:
			return "", apierrors.NewBadRequest(fmt.Sprintf(
				"a container name must be specified for pod %s, choose one of: %s or one of the init containers: %s",
				pod.Name, names, inits))
		default:
			return "", apierrors.NewBadRequest(fmt.Sprintf(
				"a container name must be specified for pod %s, choose one of: %s", pod.Name, names))
		}
	}
	for _, known := range append(names, inits...) {
		if known == name {
			return name, nil
		}
	}
	return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, pod.Name))
}

func containerNames(containers []corev1.Container) []string {
	names := make([]string, 0, len(containers))
	for i := range containers {
		names = append(names, containers[i].Name)
	}
	return names
}

// logQuery writes log options as the kubelet's API reads them.
func logQuery(o *corev1.PodLogOptions) url.Values {
	q := url.Values{}
	setTrue(q, "follow", o.Follow)
	setTrue(q, "previous", o.Previous)
	setTrue(q, "timestamps", o.Timestamps)
	setInt(q, "sinceSeconds", o.SinceSeconds)
	if o.SinceTime != nil {
		q.Set("sinceTime", o.SinceTime.Format(time.RFC3339))
	}
	setInt(q, "tailLines", o.TailLines)
	setInt(q, "limitBytes", o.LimitBytes)
	if o.Stream != nil && *o.Stream != corev1.LogStreamAll {
		q.Set("stream", *o.Stream)
	}
	return q
}

// streamQuery writes the streams that are wanted, in the words of the kubelet's API ("1" is its true).
func streamQuery(stdin, stdout, stderr, tty bool, command []string) url.Values {
	q := url.Values{}
	for name, wanted := range map[string]bool{
		corev1.ExecStdinParam: stdin, corev1.ExecStdoutParam: stdout, corev1.ExecStderrParam: stderr, corev1.ExecTTYParam: tty,
	} {
		if wanted {
			q.Set(name, "1")
		}
	}
	for _, arg := range command {
		q.Add(corev1.ExecCommandParam, arg)
	}
	return q
}

func setTrue(q url.Values, name string, value bool) {
	if value {
		q.Set(name, "true")
	}
}

func setInt(q url.Values, name string, value *int64) {
	if value != nil {
		q.Set(name, strconv.FormatInt(*value, 10))
	}
}
