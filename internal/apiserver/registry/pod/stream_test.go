package pod_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	clientexec "k8s.io/client-go/util/exec"

	"monopod.dev/monopod/internal/apiserver"
)

// world is a real API server, and a node n whose agent is a stand-in. The node m has no agent.
type world struct {
	*testing.T
	client kubernetes.Interface
	config *restclient.Config
	agent  *agent
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "pod") // short: it holds a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ctx, cancel := context.WithCancel(context.Background())
	server, err := apiserver.New(ctx, apiserver.Config{
		DataDir: filepath.Join(dir, "d"), RunDir: filepath.Join(dir, "r"), BindAddress: "127.0.0.1",
		NodeName: "n", NodeAddresses: []string{"127.0.0.1"}, EtcdTick: 10 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the API server ended with %v", err)
		}
	})
	select {
	case <-server.Ready():
	case <-time.After(timeout):
		t.Fatal("the API server does not become ready")
	}
	w := &world{T: t, config: server.AdminConfig()}
	cert, key, ca := server.AgentServingFiles()
	w.agent = newAgent(t, cert, key, ca)
	if w.client, err = kubernetes.NewForConfig(w.config); err != nil {
		t.Fatal(err)
	}
	w.nodes()
	return w
}

func (w *world) nodes() {
	w.Helper()
	u, err := url.Parse(w.agent.URL)
	if err != nil {
		w.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		w.Fatal(err)
	}
	for _, name := range []string{"n", "m"} {
		node, err := w.client.CoreV1().Nodes().Create(w.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			w.Fatal(err)
		}
		if name == "m" {
			continue
		}
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: u.Hostname()}}
		node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
		if _, err := w.client.CoreV1().Nodes().UpdateStatus(w.Context(), node, metav1.UpdateOptions{}); err != nil {
			w.Fatal(err)
		}
	}
}

// pod makes a pod on a node with containers of the given names.
func (w *world) pod(name, node string, containers ...string) {
	w.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node}}
	for _, c := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: c, Image: "i"})
	}
	if _, err := w.client.CoreV1().Pods("default").Create(w.Context(), pod, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) url(pod, subresource, query string) *url.URL {
	u := w.client.CoreV1().RESTClient().Get().Namespace("default").Resource("pods").Name(pod).SubResource(subresource).URL()
	u.RawQuery = query
	return u
}

// executors are the two ways of kubectl, today's and yesterday's.
func (w *world) executors(u *url.URL) map[string]remotecommand.Executor {
	w.Helper()
	ws, err := remotecommand.NewWebSocketExecutor(w.config, http.MethodGet, u.String())
	if err != nil {
		w.Fatal(err)
	}
	old, err := remotecommand.NewSPDYExecutor(w.config, http.MethodPost, u)
	if err != nil {
		w.Fatal(err)
	}
	return map[string]remotecommand.Executor{"websocket": ws, "spdy": old}
}

type oneSize chan remotecommand.TerminalSize

func (s oneSize) Next() *remotecommand.TerminalSize {
	size, ok := <-s
	if !ok {
		return nil
	}
	return &size
}

func TestStreams(t *testing.T) {
	w := newWorld(t)
	w.pod("p", "n", "c")
	w.pod("two", "n", "c", "silent")
	w.pod("waiting", "", "c")
	w.pod("lost", "m", "c")
	t.Run("exec", w.testExec)
	t.Run("exec refused", w.testExecRefused)
	t.Run("attach", w.testAttach)
	t.Run("port-forward", w.testPortForward)
	t.Run("log", w.testLog)
	t.Run("log over a WebSocket", w.testLogOverWebSocket)
	t.Run("log followed", w.testLogFollowed)
	t.Run("log of an agent whose certificate is not good", w.testLogUnverified)
}

func (w *world) testExec(t *testing.T) {
	for _, tc := range []struct {
		name, query string
		opts        func(*remotecommand.StreamOptions)
		out, err    string
		code        int
	}{
		{name: "stdin to stdout", query: "command=cat&stdin=1&stdout=1", out: "p/c [cat] tty=false\nhello",
			opts: func(o *remotecommand.StreamOptions) { o.Stdin = strings.NewReader("hello") }},
		{name: "arguments", query: "command=echo&command=a+b&command=%26&stdout=true", out: "p/c [echo a b &] tty=false\n"},
		{name: "exit code", query: "command=fail&stdout=1&stderr=1", out: "p/c [fail] tty=false\n", err: "no luck", code: 7},
		{name: "terminal", query: "command=size&stdin=1&stdout=1&tty=1", out: "p/c [size] tty=true\n80x25",
			opts: func(o *remotecommand.StreamOptions) {
				sizes := make(oneSize, 1)
				sizes <- remotecommand.TerminalSize{Width: 80, Height: 25}
				o.Stdin, o.Tty, o.TerminalSizeQueue = strings.NewReader(""), true, sizes
			}},
	} {
		for protocol, executor := range w.executors(w.url("p", "exec", tc.query)) {
			t.Run(tc.name+", "+protocol, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				var out, stderr bytes.Buffer
				opts := remotecommand.StreamOptions{Stdout: &out}
				if tc.err != "" {
					opts.Stderr = &stderr
				}
				if tc.opts != nil {
					tc.opts(&opts)
				}
				err := executor.StreamWithContext(ctx, opts)
				var exit clientexec.CodeExitError
				if tc.code == 0 && err != nil || tc.code != 0 && (!errors.As(err, &exit) || exit.Code != tc.code) {
					t.Errorf("error %v, want exit code %d", err, tc.code)
				}
				if out.String() != tc.out || stderr.String() != tc.err {
					t.Errorf("stdout %q, stderr %q, want %q, %q", out.String(), stderr.String(), tc.out, tc.err)
				}
			})
		}
	}
	for w.agent.lastAsked() != "" {
	}
}

func (w *world) testExecRefused(t *testing.T) {
	for name, tc := range map[string]struct{ pod, query, want string }{
		"not bound":         {"waiting", "command=x&stdout=1", "does not have a host assigned"},
		"no command":        {"p", "stdout=1", "at least one command"},
		"which one?":        {"two", "command=x&stdout=1", "choose one of: [c silent]"},
		"unknown container": {"p", "command=x&stdout=1&container=e", "container e is not valid for pod p"},
		"no agent":          {"lost", "command=x&stdout=1", "node m"},
		"bad option":        {"p", "command=x&stdout=1&tty=perhaps", "tty"},
		"no such pod":       {"none", "command=x&stdout=1", `pods "none" not found`},
	} {
		for protocol, executor := range w.executors(w.url(tc.pod, "exec", tc.query)) {
			t.Run(name+", "+protocol, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: io.Discard})
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("error %v, want one with %q", err, tc.want)
				}
			})
		}
	}
	if uri := w.agent.lastAsked(); uri != "" {
		t.Errorf("the agent was asked for %s", uri)
	}
}

func (w *world) testAttach(t *testing.T) {
	for protocol, executor := range w.executors(w.url("two", "attach", "stdin=1&stdout=1&container=c")) {
		t.Run(protocol, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			var out bytes.Buffer
			err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: strings.NewReader("hello"), Stdout: &out})
			if want := "attached to two/c tty=false\nhello"; err != nil || out.String() != want {
				t.Errorf("stdout %q, %v, want %q", out.String(), err, want)
			}
			w.agent.lastAsked()
		})
	}
}

func (w *world) testPortForward(t *testing.T) {
	u := w.url("p", "portforward", "")
	transport, upgrader, err := spdy.RoundTripperFor(w.config)
	if err != nil {
		t.Fatal(err)
	}
	plain := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, u)
	tunnel, err := portforward.NewSPDYOverWebsocketDialerForStreaming(u, w.config)
	if err != nil {
		t.Fatal(err)
	}
	addresses, ports := []string{"127.0.0.1"}, []string{"0:8080"}
	for protocol, open := range map[string]func(context.Context, chan struct{}) (*portforward.PortForwarder, error){
		"spdy": func(ctx context.Context, ready chan struct{}) (*portforward.PortForwarder, error) {
			return portforward.NewOnAddressesWithContext(ctx, plain, addresses, ports, ready, io.Discard, io.Discard)
		},
		"websocket": func(ctx context.Context, ready chan struct{}) (*portforward.PortForwarder, error) {
			return portforward.NewOnAddressesForStreamingWithContext(ctx, tunnel, addresses, ports, ready, io.Discard, io.Discard)
		},
	} {
		t.Run(protocol, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			ready, done := make(chan struct{}), make(chan error, 1)
			forwarder, err := open(ctx, ready)
			if err != nil {
				t.Fatal(err)
			}
			go func() { done <- forwarder.ForwardPorts() }()
			select {
			case <-ready:
			case err := <-done:
				t.Fatalf("forwarding ended: %v", err)
			}
			local, err := forwarder.GetPorts()
			if err != nil {
				t.Fatal(err)
			}
			conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", local[0].Local))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprint(conn, "ping")
			answer, err := io.ReadAll(conn)
			if err != nil || string(answer) != "PING from 8080" {
				t.Errorf("answer %q, %v", answer, err)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			w.agent.lastAsked()
		})
	}
}

func (w *world) testLog(t *testing.T) {
	one, tail := int64(1), int64(5)
	for name, tc := range map[string]struct {
		pod    string
		opts   corev1.PodLogOptions
		asked  string
		text   string
		refuse func(error) bool
	}{
		"the only container": {pod: "p", asked: "/containerLogs/default/p/c", text: "one line of c\n"},
		"a named one":        {pod: "two", opts: corev1.PodLogOptions{Container: "c"}, asked: "/containerLogs/default/two/c", text: "one line of c\n"},
		"options": {pod: "p", opts: corev1.PodLogOptions{Previous: true, Timestamps: true, TailLines: &tail, LimitBytes: &one, SinceSeconds: &one},
			asked: "/containerLogs/default/p/c?limitBytes=1&previous=true&sinceSeconds=1&tailLines=5&timestamps=true", text: "one line of c\n"},
		"not bound":         {pod: "waiting"},
		"which one?":        {pod: "two", refuse: apierrors.IsBadRequest},
		"unknown container": {pod: "p", opts: corev1.PodLogOptions{Container: "x"}, refuse: apierrors.IsBadRequest},
		"no agent":          {pod: "lost", refuse: apierrors.IsServiceUnavailable},
		"agent says no":     {pod: "two", opts: corev1.PodLogOptions{Container: "silent"}, asked: "/containerLogs/default/two/silent", refuse: apierrors.IsBadRequest},
		"bad options":       {pod: "p", opts: corev1.PodLogOptions{SinceSeconds: new(int64)}, refuse: apierrors.IsInvalid},
		"no such pod":       {pod: "none", refuse: apierrors.IsNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := w.client.CoreV1().Pods("default").GetLogs(tc.pod, &tc.opts).DoRaw(t.Context())
			if tc.refuse == nil && (err != nil || string(text) != tc.text) || tc.refuse != nil && !tc.refuse(err) {
				t.Errorf("log %q, error %v, want %q", text, err, tc.text)
			}
			if got := w.agent.lastAsked(); got != tc.asked {
				t.Errorf("the agent was asked for %q, want %q", got, tc.asked)
			}
		})
	}
}

// testLogOverWebSocket reads a log as a page in a browser does.
func (w *world) testLogOverWebSocket(t *testing.T) {
	tlsConfig, err := restclient.TLSConfigFor(w.config)
	if err != nil {
		t.Fatal(err)
	}
	u := w.url("p", "log", "")
	u.Scheme = "wss"
	dialer := websocket.Dialer{TLSClientConfig: tlsConfig, Subprotocols: []string{"binary.k8s.io"}, HandshakeTimeout: timeout}
	conn, resp, err := dialer.DialContext(t.Context(), u.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	defer conn.Close()
	var text []byte
	for {
		_, part, err := conn.ReadMessage()
		if err != nil {
			break
		}
		text = append(text, part...)
	}
	if string(text) != "one line of c\n" {
		t.Errorf("log %q", text)
	}
	w.agent.lastAsked()
}

// testLogFollowed reads a line of a log that does not end.
func (w *world) testLogFollowed(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	stream, err := w.client.CoreV1().Pods("default").GetLogs("p", &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	line, err := bufio.NewReader(stream).ReadString('\n')
	if err != nil || line != "one line of c\n" {
		t.Errorf("line %q, %v", line, err)
	}
}

// testLogUnverified reads a log from who has the address of another node's agent: only where the client says that anybody will do.
func (w *world) testLogUnverified(t *testing.T) {
	node, err := w.client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	other, err := w.client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	other.Status.Addresses, other.Status.DaemonEndpoints = node.Status.Addresses, node.Status.DaemonEndpoints
	if _, err := w.client.CoreV1().Nodes().UpdateStatus(t.Context(), other, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.pod("elsewhere", "other", "c")
	for w.agent.lastAsked() != "" {
	}
	text, err := w.client.CoreV1().Pods("default").GetLogs("elsewhere", &corev1.PodLogOptions{}).DoRaw(t.Context())
	if err == nil || w.agent.lastAsked() != "" {
		t.Errorf("log %q of an agent with another's certificate, want an error", text)
	}
	text, err = w.client.CoreV1().Pods("default").GetLogs("elsewhere", &corev1.PodLogOptions{InsecureSkipTLSVerifyBackend: true}).DoRaw(t.Context())
	if err != nil || string(text) != "one line of c\n" {
		t.Errorf("log %q, error %v, want that of whoever answers", text, err)
	}
	if got, want := w.agent.lastAsked(), "/containerLogs/default/elsewhere/c"; got != want {
		t.Errorf("the agent was asked for %q, want %q", got, want)
	}
}
