package pod

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericrest "k8s.io/apiserver/pkg/registry/generic/rest"
	"k8s.io/apiserver/pkg/registry/rest"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	clientexec "k8s.io/client-go/util/exec"
	agentforward "k8s.io/cri-streaming/pkg/streaming/portforward"
	agentcommand "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

const streamTimeout = 10 * time.Second

// agent is an agent's API over TLS with the streaming library that kubelets have, and a "container" that is a function:
// its command decides what it does with its streams.
type agent struct {
	*httptest.Server
	requests chan *http.Request
}

func newAgent(t *testing.T) *agent {
	a := &agent{requests: make(chan *http.Request, 16)}
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", func(w http.ResponseWriter, req *http.Request) {
		opts, err := agentcommand.NewOptions(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		agentcommand.ServeExec(w, req, a, req.PathValue("pod"), "", req.PathValue("container"), req.URL.Query()["command"],
			opts, streamTimeout, streamTimeout, agentcommand.SupportedStreamingProtocols)
	})
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", func(w http.ResponseWriter, req *http.Request) {
		opts, err := agentcommand.NewOptions(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		agentcommand.ServeAttach(w, req, a, req.PathValue("pod"), "", req.PathValue("container"),
			opts, streamTimeout, streamTimeout, agentcommand.SupportedStreamingProtocols)
	})
	mux.HandleFunc("/portForward/{namespace}/{pod}", func(w http.ResponseWriter, req *http.Request) {
		agentforward.ServePortForward(w, req, a, req.PathValue("pod"), "", nil, streamTimeout, streamTimeout, agentforward.SupportedProtocols)
	})
	mux.HandleFunc("/containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, req *http.Request) {
		if req.PathValue("container") == "silent" {
			http.Error(w, "container silent has not been started", http.StatusBadRequest)
			return
		}
		fmt.Fprintln(w, "one line of", req.PathValue("container"))
	})
	a.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		a.requests <- req
		mux.ServeHTTP(w, req)
	}))
	t.Cleanup(a.Close)
	return a
}

func (a *agent) AgentConnection(_ context.Context, node string) (Connection, error) {
	if node != "n" {
		return Connection{}, apierrors.NewNotFound(corev1.Resource("nodes"), node)
	}
	u, err := url.Parse(a.URL)
	if err != nil {
		return Connection{}, err
	}
	return Connection{Scheme: u.Scheme, Host: u.Hostname(), Port: u.Port(), Transport: a.Client().Transport}, nil
}

func (a *agent) ExecInContainer(_ context.Context, pod, _, container string, cmd []string, in io.Reader, out, stderr io.WriteCloser,
	tty bool, resize <-chan agentcommand.TerminalSize, _ time.Duration) error {
	fmt.Fprintf(out, "%s/%s %v tty=%v\n", pod, container, cmd, tty)
	switch cmd[0] {
	case "cat":
		_, err := io.Copy(out, in)
		return err
	case "size":
		size := <-resize
		fmt.Fprintf(out, "%dx%d", size.Width, size.Height)
	case "fail":
		fmt.Fprint(stderr, "no luck")
		return utilexec.CodeExitError{Err: errors.New("it ended"), Code: 7}
	}
	return nil
}

func (a *agent) AttachContainer(_ context.Context, pod, _, container string, in io.Reader, out, _ io.WriteCloser, tty bool, _ <-chan agentcommand.TerminalSize) error {
	fmt.Fprintf(out, "attached to %s/%s tty=%v\n", pod, container, tty)
	_, err := io.Copy(out, in)
	return err
}

func (a *agent) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	question := make([]byte, 4)
	if _, err := io.ReadFull(stream, question); err != nil {
		return err
	}
	_, err := fmt.Fprintf(stream, "%s from %d", bytes.ToUpper(question), port)
	return err
}

// pods is a store of pods by name.
type pods map[string]*corev1.Pod

func (p pods) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if pod := p[name]; pod != nil {
		return pod, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

func podOn(node string, containers ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: corev1.PodSpec{NodeName: node}}
	for _, c := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: c})
	}
	return pod
}

// responder writes API errors as a server would.
type responder struct{ w http.ResponseWriter }

func (r responder) Object(code int, _ runtime.Object) { r.w.WriteHeader(code) }
func (r responder) Error(err error)                   { http.Error(r.w, err.Error(), http.StatusInternalServerError) }

// serve serves one streaming subresource of the pod p over HTTP, as the API server's machinery does.
func serve(t *testing.T, storage rest.Connecter) *httptest.Server {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		options, _, _ := storage.NewConnectOptions()
		query := req.URL.Query()
		if err := scheme.Convert(&query, options, nil); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		handler, err := storage.Connect(req.Context(), "p", options, responder{w})
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		handler.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	return server
}

// executors are the two ways of kubectl, today's and yesterday's.
func executors(t *testing.T, target string) map[string]remotecommand.Executor {
	t.Helper()
	config := &restclient.Config{Host: target}
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	ws, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, target)
	if err != nil {
		t.Fatal(err)
	}
	old, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, u)
	if err != nil {
		t.Fatal(err)
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

func TestExec(t *testing.T) {
	a := newAgent(t)
	exec := &ExecREST{locator: locator{pods: pods{"p": podOn("n", "c")}, agents: a}}
	server := serve(t, exec)
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
		for protocol, executor := range executors(t, server.URL+"?"+tc.query) {
			t.Run(tc.name+", "+protocol, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), streamTimeout)
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
}

func TestAttach(t *testing.T) {
	a := newAgent(t)
	server := serve(t, &AttachREST{locator: locator{pods: pods{"p": podOn("n", "c")}, agents: a}})
	for protocol, executor := range executors(t, server.URL+"?stdin=1&stdout=1") {
		t.Run(protocol, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), streamTimeout)
			defer cancel()
			var out bytes.Buffer
			if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: strings.NewReader("hello"), Stdout: &out}); err != nil {
				t.Error(err)
			}
			if want := "attached to p/c tty=false\nhello"; out.String() != want {
				t.Errorf("stdout %q, want %q", out.String(), want)
			}
		})
	}
}

func TestPortForward(t *testing.T) {
	a := newAgent(t)
	server := serve(t, &PortForwardREST{locator: locator{pods: pods{"p": podOn("n", "c")}, agents: a}})
	config := &restclient.Config{Host: server.URL}
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		t.Fatal(err)
	}
	tunnel, err := portforward.NewSPDYOverWebsocketDialerForStreaming(u, config)
	if err != nil {
		t.Fatal(err)
	}
	plain := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, u)
	start := map[string]func(ctx context.Context, ready chan struct{}) (*portforward.PortForwarder, error){
		"spdy": func(ctx context.Context, ready chan struct{}) (*portforward.PortForwarder, error) {
			return portforward.NewOnAddressesWithContext(ctx, plain, []string{"127.0.0.1"}, []string{"0:8080"}, ready, io.Discard, io.Discard)
		},
		"websocket": func(ctx context.Context, ready chan struct{}) (*portforward.PortForwarder, error) {
			return portforward.NewOnAddressesForStreamingWithContext(ctx, tunnel, []string{"127.0.0.1"}, []string{"0:8080"}, ready, io.Discard, io.Discard)
		},
	}
	for protocol, open := range start {
		t.Run(protocol, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), streamTimeout)
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
			ports, err := forwarder.GetPorts()
			if err != nil {
				t.Fatal(err)
			}
			conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(conn, "ping")
			answer, err := io.ReadAll(conn)
			if err != nil || string(answer) != "PING from 8080" {
				t.Errorf("answer %q, %v", answer, err)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLog(t *testing.T) {
	a := newAgent(t)
	one, tail, stdout := int64(1), int64(5), corev1.LogStreamStdout
	since := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	for name, tc := range map[string]struct {
		pod     *corev1.Pod
		opts    corev1.PodLogOptions
		request string // that the agent gets; empty: none
		text    string
		reason  metav1.StatusReason
	}{
		"the only container": {pod: podOn("n", "c"), request: "/containerLogs/ns/p/c", text: "one line of c\n"},
		"a named one":        {pod: podOn("n", "c", "d"), opts: corev1.PodLogOptions{Container: "d"}, request: "/containerLogs/ns/p/d", text: "one line of d\n"},
		"all options": {pod: podOn("n", "c"), opts: corev1.PodLogOptions{
			Follow: true, Previous: true, Timestamps: true, SinceTime: &since, TailLines: &tail, LimitBytes: &one},
			request: "/containerLogs/ns/p/c?follow=true&limitBytes=1&previous=true&sinceTime=2026-01-02T03%3A04%3A05Z&tailLines=5&timestamps=true", text: "one line of c\n"},
		"one stream":        {pod: podOn("n", "c"), opts: corev1.PodLogOptions{Stream: &stdout, SinceSeconds: &one}, request: "/containerLogs/ns/p/c?sinceSeconds=1&stream=Stdout", text: "one line of c\n"},
		"not bound":         {pod: podOn("", "c")},
		"which one?":        {pod: podOn("n", "c", "d"), reason: metav1.StatusReasonBadRequest},
		"unknown container": {pod: podOn("n", "c"), opts: corev1.PodLogOptions{Container: "x"}, reason: metav1.StatusReasonBadRequest},
		"unknown node":      {pod: podOn("m", "c"), reason: metav1.StatusReasonNotFound},
		"agent says no":     {pod: podOn("n", "silent"), request: "/containerLogs/ns/p/silent", reason: metav1.StatusReasonBadRequest},
		"bad options":       {pod: podOn("n", "c"), opts: corev1.PodLogOptions{SinceSeconds: &one, SinceTime: &since}, reason: metav1.StatusReasonInvalid},
		"no pod":            {reason: metav1.StatusReasonNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			store := pods{}
			if tc.pod != nil {
				store["p"] = tc.pod
			}
			text, err := readLog(t.Context(), &LogREST{locator: locator{pods: store, agents: a}}, &tc.opts)
			if text != tc.text || apierrors.ReasonForError(err) != cmpReason(tc.reason) {
				t.Errorf("log %q, error %v, want %q, reason %s", text, err, tc.text, tc.reason)
			}
			var got string
			select {
			case req := <-a.requests:
				got = req.URL.RequestURI()
			default:
			}
			if got != tc.request {
				t.Errorf("the agent was asked for %q, want %q", got, tc.request)
			}
		})
	}
}

func cmpReason(r metav1.StatusReason) metav1.StatusReason {
	if r == "" {
		return metav1.StatusReasonUnknown // what ReasonForError says of no error
	}
	return r
}

func readLog(ctx context.Context, log *LogREST, opts *corev1.PodLogOptions) (string, error) {
	obj, err := log.Get(ctx, "p", opts)
	if err != nil {
		return "", err
	}
	stream, flush, contentType, err := obj.(*genericrest.LocationStreamer).InputStream(ctx, "v1", "")
	if err != nil || stream == nil {
		return "", err
	}
	defer stream.Close()
	if flush != opts.Follow || contentType != "text/plain" {
		return "", fmt.Errorf("flush %v, content type %q", flush, contentType)
	}
	text, err := io.ReadAll(stream)
	return string(text), err
}

func TestStreamsNeedANodeAndAContainer(t *testing.T) {
	a := newAgent(t)
	for name, tc := range map[string]struct {
		pod     *corev1.Pod
		options corev1.PodExecOptions
		want    string
	}{
		"not bound":         {podOn("", "c"), corev1.PodExecOptions{Command: []string{"x"}}, "does not have a host assigned"},
		"no command":        {podOn("n", "c"), corev1.PodExecOptions{}, "at least one command"},
		"which one?":        {podOn("n", "c", "d"), corev1.PodExecOptions{Command: []string{"x"}}, "choose one of: [c d]"},
		"unknown container": {podOn("n", "c"), corev1.PodExecOptions{Command: []string{"x"}, Container: "e"}, "container e is not valid for pod p"},
	} {
		t.Run(name, func(t *testing.T) {
			exec := &ExecREST{locator: locator{pods: pods{"p": tc.pod}, agents: a}}
			_, err := exec.Connect(t.Context(), "p", &tc.options, nil)
			if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want a bad request with %q", err, tc.want)
			}
		})
	}
}

func TestChooseContainerKnowsInitContainers(t *testing.T) {
	pod := podOn("n", "c")
	pod.Spec.InitContainers = []corev1.Container{{Name: "i"}}
	if got, err := chooseContainer(pod, "i"); got != "i" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := chooseContainer(pod, ""); err == nil || !strings.Contains(err.Error(), "or one of the init containers: [i]") {
		t.Errorf("error %v", err)
	}
}

func TestBadQueriesAreRefusedByName(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"tailLines=many":      "tailLines",
		"follow=perhaps":      "follow",
		"sinceTime=yesterday": "sinceTime",
	} {
		values, _ := url.ParseQuery(query)
		err := scheme.Convert(&values, &corev1.PodLogOptions{}, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one that names %s", query, err, want)
		}
	}
}
