package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/metrics"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/agent/podstats"
	"monopod.dev/monopod/internal/kit/preauth"
	"monopod.dev/monopod/test/crifake"
	"monopod.dev/monopod/test/testcerts"
)

// bench is a server with one pod "p" of one container "a" that runs and has a log.
type bench struct {
	*testing.T
	ca  *testcerts.Authority
	rt  *crifake.Runtime
	url string
	pod *v1.Pod
	id  string
	log string

	metrics *metrics.Agent
	stats   *podstats.Collector

	starting atomic.Bool // no pods are known before somebody waits for them
	awaited  atomic.Int32

	mu      sync.Mutex // guards what follows
	reviews []string
	ticks   []chan struct{}
}

func newBench(t *testing.T) *bench {
	t.Helper()
	return newBenchWith(t, preauth.Limits{})
}

func newBenchWith(t *testing.T, strangers preauth.Limits) *bench {
	t.Helper()
	t.Cleanup(func() {
		goleak.VerifyNone(t,
			// The libraries' caches of reviews have goroutines that live as long as the process.
			goleak.IgnoreAnyFunction("k8s.io/apiserver/pkg/authentication/token/cache.newWithClock.func1"),
			goleak.IgnoreAnyFunction("k8s.io/apimachinery/pkg/util/cache.NewExpiring.func1"),
			// It waits a second for who wants to know of an error.
			goleak.IgnoreTopFunction("github.com/moby/spdystream.(*Connection).shutdown"))
	})
	dir, err := os.MkdirTemp("/tmp", "mps")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &bench{T: t, ca: testcerts.New(t, dir), rt: crifake.Start(t, filepath.Join(dir, "cri.sock"))}
	b.pod = &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "a", Image: "img"}, {Name: "idle", Image: "img"}}},
		Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
			Name: "idle", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ErrImagePull"}}}}},
	}
	var collector *podstats.Collector
	operations := metrics.NewOperations()
	b.metrics = metrics.NewAgent(metrics.AgentConfig{
		NodeName: "n", Version: "v1", Operations: operations, Desired: func() int { return 1 },
		Running: func() (int, map[string]int, bool) {
			s, err := collector.Snapshot(t.Context())
			if err != nil {
				return 0, nil, false
			}
			return s.Sandboxes, s.Containers, true
		},
	})
	client, err := cri.Dial(cri.Config{Socket: b.rt.Socket, Observe: operations.Count, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	collector = podstats.New(t.Context(), podstats.Config{
		NodeName: "n", Runtime: client, Images: client.Images, PodsDir: filepath.Join(dir, "pods"), LogsDir: dir, DiskDir: dir, Log: slog.New(slog.DiscardHandler),
	})
	b.stats = collector
	b.id = b.startContainer(client, dir)
	b.log = filepath.Join(dir, podspec.LogPath("a", 0))
	b.serve(client, strangers)
	return b
}

func (b *bench) startContainer(client *cri.Client, logDir string) string {
	sandbox := podspec.Sandbox(podspec.SandboxInput{Pod: b.pod, LogDir: logDir})
	s, err := client.RunPodSandbox(b.Context(), &criv1.RunPodSandboxRequest{Config: sandbox})
	if err != nil {
		b.Fatal(err)
	}
	c, err := client.CreateContainer(b.Context(), &criv1.CreateContainerRequest{
		PodSandboxId: s.PodSandboxId, SandboxConfig: sandbox,
		Config: podspec.Container(podspec.ContainerInput{Pod: b.pod, Container: &b.pod.Spec.Containers[0]}),
	})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := client.StartContainer(b.Context(), &criv1.StartContainerRequest{ContainerId: c.ContainerId}); err != nil {
		b.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(logDir, "a"), 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(logDir, "a", "0.log"), []byte("2026-01-01T00:00:01Z stdout F one\n2026-01-01T00:00:02Z stderr F two\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	return c.ContainerId
}

func (b *bench) serve(client *cri.Client, strangers preauth.Limits) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	cert, key := b.ca.Serving(b)
	s, err := New(Config{
		Listener: listener, Cert: cert, Key: key, ClientCA: b.ca.CAFile(), Kube: b.reviewer(), Runtime: client, Pods: b,
		NodeName: "n", Stats: b.stats, Metrics: b.metrics, Probes: probed{}, Config: func() any { return map[string]int{"maxPods": 7} },
		Strangers: strangers,
		Log:       slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	s.seen.moment, s.seen.brief = time.Hour, time.Hour // a test may take longer than people do
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	b.url = "https://" + listener.Addr().String()
}

// reviewer is an API server that knows the token "good" of the user "robot", and allows "admin" all, "reader" to get
// and "robot" the pods.
func (b *bench) reviewer() kubernetes.Interface {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/tokenreviews", func(w http.ResponseWriter, r *http.Request) {
		var review authnv1.TokenReview
		b.read(r, &review)
		if review.Spec.Token == "good" {
			review.Status = authnv1.TokenReviewStatus{Authenticated: true, User: authnv1.UserInfo{Username: "robot"}}
		}
		b.write(w, review)
	})
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", func(w http.ResponseWriter, r *http.Request) {
		var review authzv1.SubjectAccessReview
		b.read(r, &review)
		attrs := review.Spec.ResourceAttributes
		b.mu.Lock()
		b.reviews = append(b.reviews, fmt.Sprintf("%s %s %s/%s", review.Spec.User, attrs.Verb, attrs.Resource, attrs.Subresource))
		b.mu.Unlock()
		switch review.Spec.User {
		case "admin":
			review.Status.Allowed = true
		case "reader":
			review.Status.Allowed = attrs.Verb == "get"
		case "robot":
			review.Status.Allowed = attrs.Subresource == "pods"
		}
		b.write(w, review)
	})
	api := httptest.NewServer(mux)
	b.Cleanup(api.Close)
	transport := &http.Transport{}
	b.Cleanup(transport.CloseIdleConnections)
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: api.URL, Transport: transport})
	if err != nil {
		b.Fatal(err)
	}
	return kube
}

func (b *bench) read(r *http.Request, into any) {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		b.Error(err)
	}
}

func (b *bench) write(w http.ResponseWriter, review any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(review); err != nil {
		b.Error(err)
	}
}

func (b *bench) Pod(namespace, name string) (*v1.Pod, bool) {
	return b.pod, namespace == b.pod.Namespace && name == b.pod.Name && !b.starting.Load()
}

// Await implements Pods: a node that is starting comes to know its pods while it is waited for.
func (b *bench) Await(context.Context) error {
	b.awaited.Add(1)
	b.starting.Store(false)
	return nil
}

func (b *bench) Pods() []*v1.Pod { return []*v1.Pod{b.pod} }

func (b *bench) Watch(types.UID) (<-chan struct{}, func()) {
	c := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ticks = append(b.ticks, c)
	return c, func() {}
}

func (b *bench) tick() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.ticks {
		select {
		case c <- struct{}{}:
		default: // it has not looked yet since the last one
		}
	}
}

// client is an HTTP client with a certificate of the user, or without one.
func (b *bench) client(user string) *http.Client {
	cfg := &tls.Config{RootCAs: b.ca.Pool()}
	if user != "" {
		cfg.Certificates = []tls.Certificate{b.ca.Client(b, user)}
	}
	t := &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true}
	b.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t, Timeout: time.Minute}
}

// A node that is just starting does not say of its pods that they are not there.
func TestPodsAreAwaited(t *testing.T) {
	b := newBench(t)
	for _, path := range []string{"/containerLogs/ns/p/a", "/pods"} {
		b.starting.Store(true)
		if code, body := b.get(b.client("admin"), path, ""); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	b.awaited.Store(0)
	if code, _ := b.get(b.client("admin"), "/containerLogs/ns/p/a", ""); code != http.StatusOK || b.awaited.Load() != 0 {
		t.Errorf("%d; a pod that is known is waited for", code)
	}
	if code, body := b.get(b.client("admin"), "/containerLogs/ns/other/a", ""); code != http.StatusNotFound || b.awaited.Load() != 1 {
		t.Errorf("a pod that is not there: %d %s, and %d waits", code, body, b.awaited.Load())
	}
}

func (b *bench) get(c *http.Client, path, token string) (int, string) {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), "GET", b.url+path, nil)
	if err != nil {
		b.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestWhoMayCome(t *testing.T) {
	b := newBench(t)
	other := testcerts.New(t, t.TempDir())
	stranger := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
		RootCAs: b.ca.Pool(), Certificates: []tls.Certificate{other.Client(t, "admin", "system:masters")},
	}}}
	for _, c := range []struct {
		name   string
		client *http.Client
		token  string
		path   string
		want   int
	}{
		{"nobody", b.client(""), "", "/pods", 401},
		{"nobody asks for health", b.client(""), "", "/healthz", 401},
		{"a bad token", b.client(""), "bad", "/pods", 401},
		{"a certificate of somebody else's authority", stranger, "", "/pods", 401},
		{"a token", b.client(""), "good", "/pods", 200},
		{"a token for more than it may", b.client(""), "good", "/containerLogs/ns/p/a", 403},
		{"a certificate", b.client("admin"), "", "/pods", 200},
		{"a reader reads a log", b.client("reader"), "", "/containerLogs/ns/p/a", 200},
		{"a reader may not exec, not by a WebSocket's GET either", b.client("reader"), "", "/exec/ns/p/a?command=x&output=1", 403},
		{"an unknown user", b.client("other"), "", "/healthz", 403},
		{"a path that is not served", b.client("admin"), "", "/run/ns/p/a", 404},
	} {
		t.Run(c.name, func(t *testing.T) {
			if code, body := b.get(c.client, c.path, c.token); code != c.want {
				t.Errorf("%s: %d %s, want %d", c.path, code, body, c.want)
			}
		})
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	reviews := strings.Join(b.reviews, "\n")
	for _, want := range []string{"reader create nodes/proxy", "reader get nodes/proxy", "robot get nodes/pods", "other get nodes/healthz"} {
		if !strings.Contains(reviews, want) {
			t.Errorf("%q was not asked for:\n%s", want, reviews)
		}
	}
}

func TestLogs(t *testing.T) {
	b := newBench(t)
	admin := b.client("admin")
	for _, c := range []struct {
		path string
		code int
		want string
	}{
		{"ns/p/a", 200, "one\ntwo\n"},
		{"ns/p/a?tailLines=1", 200, "two\n"},
		{"ns/p/a?timestamps=true&tailLines=1", 200, "2026-01-01T00:00:02Z two\n"},
		{"ns/p/a?sinceTime=2026-01-01T00:00:02Z", 200, "two\n"},
		{"ns/p/a?limitBytes=2", 200, "on"},
		{"ns/p/a?stream=Stdout", 200, "one\n"},
		{"ns/p/a?tailLines=-1", 400, `tailLines="-1" must be a number, 0 or more`},
		{"ns/p/a?tailLines=x&follow=maybe", 400, `follow="maybe" is not a boolean`},
		{"ns/p/a?sinceSeconds=1&sinceTime=2026-01-01T00:00:02Z", 400, "at most one of"},
		{"ns/p/a?previous=true", 400, `previous terminated container "a" in pod "p" not found`},
		{"ns/p/idle", 400, "waiting to start: ErrImagePull"},
		{"ns/p/none", 404, `container "none" not found`},
		{"ns/none/a", 404, `pod "ns/none" not found`},
	} {
		code, body := b.get(admin, "/containerLogs/"+c.path, "")
		if code != c.code || code == 200 && body != c.want || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %q, want %d %q", c.path, code, body, c.code, c.want)
		}
	}
}

func TestFollowEndsWithTheContainer(t *testing.T) {
	b := newBench(t)
	resp, err := b.client("admin").Get(b.url + "/containerLogs/ns/p/a?follow=true")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	expect := func(want string) {
		t.Helper()
		if got, err := lines.ReadString('\n'); got != want {
			t.Fatalf("read %q, want %q: %v", got, want, err)
		}
	}
	expect("one\n")
	expect("two\n")
	f, err := os.OpenFile(b.log, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	write := func(s string) {
		if _, err := f.WriteString(s); err != nil {
			t.Fatal(err)
		}
	}
	write("2026-01-01T00:00:03Z stdout F three\n")
	expect("three\n")
	write("2026-01-01T00:00:04Z stdout F four\n")
	b.rt.Exit(b.id, 0)
	b.tick()
	expect("four\n")
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("after the end: %q, %v", rest, err)
	}
}

// TestStreamsPassThrough: what is upgraded on the one side is what the runtime's streaming server upgrades.
func TestStreamsPassThrough(t *testing.T) {
	b := newBench(t)
	streaming := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(buf, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
		fmt.Fprintf(buf, "%s\n", r.URL.Path)
		buf.Flush()
		line, err := buf.ReadString('\n')
		if err == nil {
			fmt.Fprintf(conn, "echo %s", line)
		}
	}))
	defer streaming.Close()
	b.rt.StreamURL = streaming.URL
	for path, want := range map[string]string{
		"/exec/ns/p/a?command=ls&output=1":   "/exec/" + b.id,
		"/exec/ns/p/u/a?command=ls&output=1": "/exec/" + b.id,
		"/attach/ns/p/a?input=1":             "/attach/" + b.id,
		"/portForward/ns/p?port=80":          "/portforward/s0001",
	} {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(b.url, "https://"), &tls.Config{
			RootCAs: b.ca.Pool(), Certificates: []tls.Certificate{b.ca.Client(t, "admin")},
		})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n", path)
		r := bufio.NewReader(conn)
		resp, err := http.ReadResponse(r, nil)
		if err != nil || resp.StatusCode != 101 || resp.Header.Get("Upgrade") != "SPDY/3.1" {
			t.Fatalf("%s: %v %v", path, resp, err)
		}
		fmt.Fprint(conn, "hello\n")
		for _, want := range []string{want + "\n", "echo hello\n"} {
			if got, err := r.ReadString('\n'); got != want {
				t.Errorf("%s: %q, want %q: %v", path, got, want, err)
			}
		}
		conn.Close()
	}
}

func TestStreamErrors(t *testing.T) {
	b := newBench(t)
	admin := b.client("admin")
	for path, want := range map[string]int{
		"/exec/ns/p/a?output=1":            400,
		"/exec/ns/p/a?command=ls":          400,
		"/exec/ns/p/idle?command=ls&tty=1": 404,
		"/exec/ns/p/wrong/a?command=ls":    404,
		"/portForward/ns/p?port=0":         400,
		"/portForward/ns/q?port=1":         404,
	} {
		resp, err := admin.Post(b.url+path, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
	}
}

func TestCertificateIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	ca := testcerts.New(t, dir)
	cert, key := ca.Serving(t)
	c := certificate{certFile: cert, keyFile: key}
	first, err := c.get(nil)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := c.get(nil); again != first {
		t.Error("it is read again though nothing has changed")
	}
	ca.Serving(t)
	later := time.Now().Add(time.Minute)
	if err := os.Chtimes(cert, later, later); err != nil {
		t.Fatal(err)
	}
	if again, _ := c.get(nil); again == first {
		t.Error("the new certificate is not served")
	}
	if err := os.WriteFile(cert, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if again, err := c.get(nil); err != nil || again == nil {
		t.Error("a damaged file ends the service:", err)
	}
}
