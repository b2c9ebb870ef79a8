package reach

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Agent is the way to the HTTPS API of one node's agent.
type Agent struct {
	// Scheme is "https" (or "http" in tests).
	Scheme string
	// Host is a name or an address without port; Port is decimal.
	Host, Port string
	// Transport authenticates the API server to the agent and the agent to the API server. For streams its
	// *tls.Config and its dialer are used with HTTP/1.1, whatever protocols it would negotiate itself.
	Transport http.RoundTripper
	// Unverified is like Transport, but takes whoever answers for the agent: for the log of a node whose certificate has expired, where a client says so.
	Unverified http.RoundTripper
}

// target is a resource of the kubelet's API, and how to get there.
type target struct {
	location  *url.URL
	transport http.RoundTripper
}

// at returns a path of the kubelet's API.
func (a Agent) at(query url.Values, elements ...string) target {
	return target{
		location: &url.URL{
			Scheme:   a.Scheme,
			Host:     net.JoinHostPort(a.Host, a.Port),
			Path:     path.Join(append([]string{"/"}, elements...)...),
			RawQuery: query.Encode(),
		},
		transport: a.Transport,
	}
}

// Log is where the log of a pod's container is read, and how.
func (a Agent) Log(pod *corev1.Pod, container string, o *corev1.PodLogOptions) (*url.URL, http.RoundTripper) {
	to := a.at(logQuery(o), "containerLogs", pod.Namespace, pod.Name, container)
	if o.InsecureSkipTLSVerifyBackend {
		return to.location, a.Unverified
	}
	return to.location, to.transport
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

// portQuery writes the ports to forward.
func portQuery(ports []int32) url.Values {
	q := url.Values{}
	for _, port := range ports {
		q.Add("port", fmt.Sprint(port))
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
