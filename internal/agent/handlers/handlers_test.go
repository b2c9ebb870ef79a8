package handlers

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// long is longer than any test takes.
const long = time.Minute

// TestMain: after all tests nothing is left of what they asked.
func TestMain(m *testing.M) {
	code := m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// subject is a container with the port "web" of a server, whose pod has that server's address.
func subject(address string) (Subject, intstr.IntOrString) {
	host, port, _ := net.SplitHostPort(address)
	number, _ := strconv.Atoi(port)
	pod := &v1.Pod{}
	pod.Namespace, pod.Name, pod.UID = "ns", "p", "u"
	return Subject{
		Pod: pod, ID: "id", IP: host,
		Container: &v1.Container{Name: "app", Ports: []v1.ContainerPort{{Name: "web", ContainerPort: int32(number)}}},
	}, intstr.FromInt(number)
}

// web is the address of a server for a test.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func says(code int, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	})
}

func redirects(to string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusFound) })
}

func TestHTTPAnswers(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("/ok", says(200, "fine"))
	mux.Handle("/accepted", says(202, ""))
	mux.Handle("/missing", says(404, "secret"))
	mux.Handle("/broken", says(503, "secret"))
	mux.Handle("/long", says(200, strings.Repeat("x", 3*MaxOutput)))
	mux.Handle("/unmodified", says(304, ""))
	mux.Handle("/here", redirects("/ok"))
	mux.Handle("/gone", redirects("/missing"))
	mux.Handle("/away", redirects("http://elsewhere.invalid/"))
	mux.Handle("/round", redirects("/round"))
	mux.Handle("/early", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusOK)
		fmt.Fprint(w, "late")
	}))
	mux.Handle("/hangup", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	mux.Handle("/chunks", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 3 {
			fmt.Fprint(w, "a")
			w.(http.Flusher).Flush()
		}
	}))
	plainAddress := serve(t, mux)
	secure := httptest.NewUnstartedServer(mux)
	secure.EnableHTTP2 = true
	secure.StartTLS()
	t.Cleanup(secure.Close)

	for _, scheme := range []v1.URIScheme{v1.URISchemeHTTP, v1.URISchemeHTTPS} {
		address := plainAddress
		if scheme == v1.URISchemeHTTPS {
			address = secure.Listener.Addr().String()
		}
		h, base := New(nil), strings.ToLower(string(scheme))+"://"+address
		for _, c := range []struct {
			path   string
			result Result
			output string
		}{
			{"/ok", Success, "fine"},
			{"/ok?a=b", Success, "fine"},
			{"ok", Success, "fine"},
			{"/accepted", Success, ""},
			{"/early", Success, "late"},
			{"/chunks", Success, "aaa"},
			{"/missing", Failure, "HTTP probe failed with statuscode: 404"},
			{"/broken", Failure, "HTTP probe failed with statuscode: 503"},
			{"/long", Success, strings.Repeat("x", MaxOutput)},
			{"/unmodified", Warning, "Probe terminated redirects, Response body: "},
			{"/here", Success, "fine"},
			{"/gone", Failure, "HTTP probe failed with statuscode: 404"},
			{"/away", Warning, "Probe terminated redirects, Response body: <a href=\"http://elsewhere.invalid/\">Found</a>.\n\n"},
			{"/round", Failure, `Get "/round": stopped after 10 redirects`},
			{"/%zz", Failure, "HTTP probe failed with statuscode: 404"},
		} {
			on, port := subject(address)
			what := &v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Scheme: scheme, Path: c.path, Port: port}}
			if a := h.Probe(t.Context(), on, what, long); a.Result != c.result || a.Output != c.output {
				t.Errorf("%s %s is %v %.200q, want %v %.200q", base, c.path, a.Result, a.Output, c.result, c.output)
			}
		}
	}
	on, port := subject(plainAddress)
	a := New(nil).Probe(t.Context(), on, &v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/hangup", Port: port}}, long)
	if want := fmt.Sprintf("Get %q: EOF", "http://"+plainAddress+"/hangup"); a.Result != Failure || a.Output != want {
		t.Errorf("a server that hangs up is %v %q, want %q", a.Result, a.Output, want)
	}
}

func TestHTTPRequest(t *testing.T) {
	got := make(chan *http.Request, 1)
	address := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r }))
	on, port := subject(address)
	h := New(nil)
	for _, c := range []struct {
		name   string
		get    v1.HTTPGetAction
		host   string
		header http.Header
	}{
		{"as it is", v1.HTTPGetAction{Path: "/a?b=c", Port: port}, address, http.Header{"User-Agent": {"kube-probe/" + h.version}, "Accept": {"*/*"}}},
		{"a port by its name", v1.HTTPGetAction{Port: intstr.FromString("web")}, address, http.Header{"User-Agent": {"kube-probe/" + h.version}, "Accept": {"*/*"}}},
		{"a port as a string", v1.HTTPGetAction{Port: intstr.FromString(port.String())}, address, http.Header{"User-Agent": {"kube-probe/" + h.version}, "Accept": {"*/*"}}},
		{"headers of its own", v1.HTTPGetAction{Port: port, HTTPHeaders: []v1.HTTPHeader{
			{Name: "host", Value: "example.com"}, {Name: "user-agent", Value: "me"}, {Name: "accept", Value: ""}, {Name: "x-a", Value: "1"}, {Name: "X-A", Value: "2"}}},
			"example.com", http.Header{"User-Agent": {"me"}, "X-A": {"1", "2"}}},
		{"a host by its name", v1.HTTPGetAction{Host: "localhost", Port: port}, "localhost:" + port.String(), http.Header{"User-Agent": {"kube-probe/" + h.version}, "Accept": {"*/*"}}},
	} {
		if a := h.Probe(t.Context(), on, &v1.ProbeHandler{HTTPGet: &c.get}, long); a.Result != Success {
			t.Errorf("%s: %v", c.name, a)
			continue
		}
		r := <-got
		if r.Host != c.host || fmt.Sprint(r.Header) != fmt.Sprint(withClose(r, c.header)) || r.Method != http.MethodGet || c.get.Path != "" && r.RequestURI != c.get.Path {
			t.Errorf("%s: the server was asked %s %s of %s with %v, want %s with %v", c.name, r.Method, r.RequestURI, r.Host, r.Header, c.host, c.header)
		}
		if !r.Close {
			t.Errorf("%s: the connection was to be kept", c.name)
		}
	}
}

// withClose adds the header that says that the connection is not to be kept.
func withClose(r *http.Request, h http.Header) http.Header {
	h = h.Clone()
	h["Connection"] = r.Header["Connection"]
	return h
}

func TestHTTPCannotBeAsked(t *testing.T) {
	on, _ := subject("127.0.0.1:80")
	for _, c := range []struct {
		port intstr.IntOrString
		want string
	}{
		{intstr.FromString("none"), "port none not found: container app has no port of this name"},
		{intstr.FromInt(0), "invalid port number: 0"},
		{intstr.FromInt(65536), "invalid port number: 65536"},
	} {
		for _, what := range []v1.ProbeHandler{{HTTPGet: &v1.HTTPGetAction{Port: c.port}}, {TCPSocket: &v1.TCPSocketAction{Port: c.port}}} {
			if a := New(nil).Probe(t.Context(), on, &what, long); a.Result != Unknown || a.Output != c.want {
				t.Errorf("port %s: %v, want Unknown %q", &c.port, a, c.want)
			}
		}
	}
	if a := New(nil).Probe(t.Context(), on, &v1.ProbeHandler{}, long); a.Result != Unknown || a.Output != "missing probe handler for p_ns(u):app" {
		t.Errorf("without a handler: %v", a)
	}
}

// Nobody listens, at an address of either family.
func TestRefused(t *testing.T) {
	for _, ip := range []string{"127.0.0.1", "::1"} {
		l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
		if err != nil {
			t.Logf("%s is not to be had here: %v", ip, err)
			continue
		}
		address := l.Addr().String()
		on, port := subject(address)
		tcp := &v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: port}}
		if a := New(nil).Probe(t.Context(), on, tcp, long); a.Result != Success {
			t.Errorf("%s listens: %v", address, a)
		}
		l.Close()
		want := "dial tcp " + address + ": connect: connection refused"
		if a := New(nil).Probe(t.Context(), on, tcp, long); a.Result != Failure || a.Output != want {
			t.Errorf("%v, want a failure with %q", a, want)
		}
		want = fmt.Sprintf("Get %q: %s", "http://"+address+"/x", want)
		if a := New(nil).Probe(t.Context(), on, &v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/x", Port: port}}, long); a.Result != Failure || a.Output != want {
			t.Errorf("%v, want a failure with %q", a, want)
		}
	}
}

// A server that takes the connection and says nothing; one that stops in the middle of its answer; and a probe that is broken off.
func TestSilence(t *testing.T) {
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	asked := make(chan struct{}, 10)
	address := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/half" {
			w.Header().Set("Content-Length", "10")
			fmt.Fprint(w, "abc")
			w.(http.Flusher).Flush()
		}
		asked <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	on, port := subject(address)
	get := func(ctx context.Context, path string, timeout time.Duration) Answer {
		return New(nil).Probe(ctx, on, &v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: path, Port: port}}, timeout)
	}
	want := fmt.Sprintf("Get %q: context deadline exceeded (Client.Timeout exceeded while awaiting headers)", "http://"+address+"/none")
	if a := get(t.Context(), "/none", time.Second); a.Result != Failure || a.Output != want {
		t.Errorf("%v, want a failure with %q", a, want)
	}
	inTime(t, func(timeout time.Duration) bool {
		a := get(t.Context(), "/half", timeout)
		return a.Result == Unknown && a.Output == context.DeadlineExceeded.Error()
	}, "half an answer is not Unknown")
	for len(asked) > 0 {
		<-asked
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if a := get(ctx, "/none", long); a.Result != Failure {
		t.Errorf("broken off it is %v", a)
	}
}

// inTime tries what is cut off in its middle, with longer and longer times: on a busy machine little may happen in a second.
func inTime(t *testing.T, try func(timeout time.Duration) bool, otherwise string) {
	t.Helper()
	for timeout := time.Second; !try(timeout); timeout *= 4 {
		if timeout > long {
			t.Error(otherwise)
			return
		}
	}
}

// What a hostile server sends is bounded, and what is no HTTP is told.
func TestStrangeServers(t *testing.T) {
	for _, c := range []struct{ name, sends, want string }{
		{"no HTTP", "hello\r\n\r\n", `net/http: HTTP/1.x transport connection broken: malformed HTTP response "hello"`},
		{"endless headers", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: "+strings.Repeat("y", 1000)+"\r\n", 3000), "unexpected EOF"},
		{"endless hints", strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 10), "net/http: too many 1xx informational responses"},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				fmt.Fprint(conn, c.sends)
			}
		}()
		on, port := subject(l.Addr().String())
		a := New(nil).Probe(t.Context(), on, &v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Port: port}}, long)
		if a.Result != Failure || !strings.HasSuffix(a.Output, c.want) {
			t.Errorf("%s: %v, want a failure with %q", c.name, a, c.want)
		}
		l.Close()
		<-ended
	}
}

// A proxy of the environment is none of a probe's.
func TestNoProxy(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	h := New(nil)
	if p := h.web.client.Transport.(byScheme).tls.Proxy; p != nil {
		u, err := p(&http.Request{URL: &url.URL{Scheme: "https", Host: "h"}})
		t.Errorf("requests go by %v (%v)", u, err)
	}
}
