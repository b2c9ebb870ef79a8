package reach_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/pki"
	"monopod.dev/monopod/internal/apiserver/reach"
)

// failAfter ends a test that fails.
const failAfter = time.Minute

// road is a road with its nodes, and servers at its ends that tell what they were asked.
type road struct {
	*testing.T
	*reach.Agents
	pki   *pki.PKI
	nodes nodes
	// at says which server stands at an address.
	at map[string]*httptest.Server

	mu     sync.Mutex // guards what follows
	dialed []string
}

type nodes map[string]*corev1.Node

func (n nodes) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if node := n[name]; node != nil {
		return node, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

func newRoad(t *testing.T) *road {
	t.Helper()
	r := &road{T: t, nodes: nodes{}, at: map[string]*httptest.Server{}}
	var err error
	if r.pki, _, err = pki.Ensure(pki.Config{Dir: t.TempDir(), NodeName: "n", ServerAddresses: []string{"192.0.2.1"}, AgentAddresses: []string{"192.0.2.1"}}); err != nil {
		t.Fatal(err)
	}
	r.Agents, err = reach.New(reach.Config{
		Nodes: r.nodes, CA: r.pki.CA, ClientCertFile: r.pki.APIServerAgent.CertFile, ClientKeyFile: r.pki.APIServerAgent.KeyFile,
		Dial: r.dial, OwnAddresses: func() ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("10.61.0.1")}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *road) dial(ctx context.Context, network, address string) (net.Conn, error) {
	r.mu.Lock()
	r.dialed = append(r.dialed, address)
	r.mu.Unlock()
	server := r.at[address]
	if server == nil {
		return nil, errors.New("nobody is at " + address)
	}
	return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
}

// serve puts a server at an address: with a certificate, and asking for the client's, when there is one.
func (r *road) serve(address string, cert *pki.Pair) {
	r.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(tell))
	if cert == nil {
		server.Start()
	} else {
		pair, err := tls.X509KeyPair(cert.Cert, cert.Key)
		if err != nil {
			r.Fatal(err)
		}
		clients := x509.NewCertPool()
		clients.AppendCertsFromPEM(r.pki.CA)
		server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: clients}
		server.StartTLS()
	}
	r.Cleanup(server.Close)
	r.at[address] = server
}

// tell answers with what was asked, and by whom; an upgraded connection with what is sent.
func tell(w http.ResponseWriter, req *http.Request) {
	if req.Header.Get("Upgrade") != "" {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := buffered.ReadString('\n')
		fmt.Fprint(conn, line)
		return
	}
	who := "nobody"
	if req.TLS != nil && len(req.TLS.PeerCertificates) > 0 {
		who = req.TLS.PeerCertificates[0].Subject.CommonName
	}
	body, _ := io.ReadAll(req.Body)
	fmt.Fprintf(w, "%s %s %q by %s, authorization %q, cookie %q", req.Method, req.URL.RequestURI(), body, who, req.Header.Get("Authorization"), req.Header.Get("Cookie"))
}

func (r *road) node(name string, port int32, addresses ...corev1.NodeAddress) {
	r.nodes[name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Addresses: addresses, DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: port}},
	}}
}

func internal(address string) corev1.NodeAddress {
	return corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address}
}

// responder answers with an error's text, and its status.
type responder struct{ w http.ResponseWriter }

func (r responder) Object(int, runtime.Object) {}

func (r responder) Error(err error) {
	code := http.StatusInternalServerError
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code = int(status.Status().Code)
	}
	http.Error(r.w, err.Error(), code)
}

// front is an API server that proxies everything by make.
func (r *road) front(make func(rest.Responder) (http.Handler, error)) *httptest.Server {
	r.Helper()
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		handler, err := make(responder{w})
		if err != nil {
			responder{w}.Error(err)
			return
		}
		handler.ServeHTTP(w, req)
	}))
	r.Cleanup(front.Close)
	return front
}

func (r *road) ask(front *httptest.Server, method, query string) (int, string) {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), method, front.URL+query, strings.NewReader("body"))
	if err != nil {
		r.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer secret")
	req.Header.Set("Cookie", "a=b")
	resp, err := front.Client().Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Fatal(err)
	}
	return resp.StatusCode, strings.TrimSpace(string(text))
}

func (r *road) toNode(id, path string) *httptest.Server {
	return r.front(func(to rest.Responder) (http.Handler, error) {
		name, backend, err := reach.ParseBackend(id)
		if err != nil {
			return nil, err
		}
		backend.Path = path
		return r.ProxyToNode(r.Context(), name, backend, to)
	})
}

func (r *road) toPod(pod *corev1.Pod, backend reach.Backend) *httptest.Server {
	return r.front(func(to rest.Responder) (http.Handler, error) { return r.ProxyToPod(r.Context(), pod, backend, to) })
}

func TestProxyToNode(t *testing.T) {
	r := newRoad(t)
	r.serve("127.0.0.1:10250", &r.pki.Agent)
	r.serve("192.0.2.1:6443", &r.pki.Server)
	r.serve("192.0.2.1:9100", nil)
	r.serve("192.0.2.1:9443", &r.pki.Server)
	r.node("n", 10250, internal("127.0.0.1"))
	r.node("other", 10250, internal("127.0.0.1"))
	r.node("api", 6443, internal("192.0.2.1"))
	r.node("named", 10250, corev1.NodeAddress{Type: corev1.NodeHostName, Address: "localhost"})
	r.node("mute", 0, internal("192.0.2.1"))
	const admin = "kube-apiserver-kubelet-client"
	for name, tc := range map[string]struct {
		id, path string
		code     int
		want     string
	}{
		"agent":                           {"n", "/healthz", 200, `GET /healthz?q=1 "body" by ` + admin + `, authorization "", cookie "a=b"`},
		"agent, by its port":              {"n:10250", "/pods/", 200, `GET /pods/?q=1 "body" by ` + admin},
		"agent, by a scheme it has not":   {"http:n:10250", "/", 200, `by ` + admin},
		"agent of another node":           {"other", "/", 503, "system:node:other"},
		"node with the API server's port": {"api", "/api/v1/secrets", 503, "system:node:api"},
		"API server by another port":      {"https:api:9443", "/", 200, "by nobody"},
		"another port":                    {"api:9100", "/metrics", 200, `GET /metrics?q=1 "body" by nobody, authorization "", cookie "a=b"`},
		"another port on loopback":        {"n:9100", "/", 400, "address not allowed: 127.0.0.1"},
		"another port, name of loopback":  {"named:9100", "/", 503, "address not allowed"},
		"no such node":                    {"none", "/", 404, `nodes "none" not found`},
		"no port of the agent":            {"mute", "/", 503, "node mute has published no port"},
		"a scheme that there is not":      {"ftp:n:21", "/", 400, `invalid request "ftp:n:21"`},
		"a port by name":                  {"n:http", "/", 400, "the port must be a number"},
		"no path":                         {"api:9100", "", 200, `GET /?q=1`},
	} {
		t.Run(name, func(t *testing.T) {
			code, text := r.ask(r.toNode(tc.id, tc.path), "GET", "/x?q=1")
			if code != tc.code || !strings.Contains(text, tc.want) {
				t.Errorf("%d %s, want %d %s", code, text, tc.code, tc.want)
			}
		})
	}
}

func TestProxyMethods(t *testing.T) {
	r := newRoad(t)
	r.serve("10.61.0.5:8080", nil)
	pod := &corev1.Pod{Status: corev1.PodStatus{PodIP: "10.61.0.5"}}
	for _, method := range reach.ProxyMethods() {
		code, text := r.ask(r.toPod(pod, reach.Backend{Port: "8080", Path: "/a/b/"}), method, "/")
		if want := method + ` /a/b/ "body" by nobody`; code != 200 || method != "HEAD" && !strings.HasPrefix(text, want) {
			t.Errorf("%d %s, want %s", code, text, want)
		}
	}
}

func TestProxyToPod(t *testing.T) {
	r := newRoad(t)
	r.serve("10.61.0.5:80", nil)
	r.serve("10.61.0.5:8443", &r.pki.Server) // a certificate for other addresses
	r.serve("[fd00:61::5]:80", nil)
	r.serve("192.0.2.1:80", nil)
	r.node("n", 10250, internal("192.0.2.1"))
	r.node("loop", 10250, internal("127.0.0.1"))
	for name, tc := range map[string]struct {
		address string
		host    string // the node whose network it has
		phase   corev1.PodPhase
		to      reach.Backend
		code    int
		want    string
		dialed  string
	}{
		"pod":                     {address: "10.61.0.5", code: 200, want: "by nobody", dialed: "10.61.0.5:80"},
		"IPv6":                    {address: "fd00:61::5", code: 200, want: "by nobody", dialed: "[fd00:61::5]:80"},
		"https":                   {address: "10.61.0.5", to: reach.Backend{Scheme: "https", Port: "8443"}, code: 200, want: "by nobody", dialed: "10.61.0.5:8443"},
		"nobody there":            {address: "10.61.0.6", code: 503, want: "nobody is at 10.61.0.6:80", dialed: "10.61.0.6:80"},
		"no address yet":          {code: 400, want: "has no address"},
		"ended":                   {address: "10.61.0.5", phase: corev1.PodSucceeded, code: 400, want: "has ended (Succeeded)"},
		"a name":                  {address: "localhost", code: 400, want: "localhost"},
		"loopback":                {address: "127.0.0.1", code: 400, want: "address not allowed"},
		"loopback in IPv6":        {address: "::ffff:127.0.0.1", code: 400, want: "address not allowed"},
		"link-local":              {address: "169.254.169.254", code: 400, want: "address not allowed"},
		"link-local IPv6":         {address: "fe80::1", code: 400, want: "address not allowed"},
		"unspecified":             {address: "0.0.0.0", code: 400, want: "address not allowed"},
		"metadata":                {address: "fd00:ec2::254", code: 400, want: "address not allowed"},
		"metadata, in a disguise": {address: "::ffff:168.63.129.16", code: 400, want: "address not allowed"},
		"the API server's":        {address: "192.0.2.1", code: 400, want: "address not allowed: 192.0.2.1 is one of the API server's host"},
		"the bridge's":            {address: "10.61.0.1", code: 400, want: "address not allowed"},
		"host's network":          {address: "127.0.0.1", host: "n", code: 200, want: "by nobody", dialed: "192.0.2.1:80"},
		"host's loopback":         {address: "192.0.2.1", host: "loop", code: 400, want: "address not allowed"},
		"host that is not there":  {address: "192.0.2.1", host: "none", code: 404, want: `nodes "none" not found`},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Status: corev1.PodStatus{PodIP: tc.address, Phase: tc.phase}}
			pod.Spec.NodeName, pod.Spec.HostNetwork = tc.host, tc.host != ""
			tc.to.Path = "/"
			r.dialed = nil
			code, text := r.ask(r.toPod(pod, tc.to), "GET", "/")
			if code != tc.code || !strings.Contains(text, tc.want) {
				t.Errorf("%d %s, want %d %s", code, text, tc.code, tc.want)
			}
			if want := slices.DeleteFunc([]string{tc.dialed}, func(s string) bool { return s == "" }); !slices.Equal(r.dialed, want) {
				t.Errorf("dialled %q, want %q", r.dialed, want)
			}
		})
	}
}

// What somebody has written down as a pod's address leads nowhere unless the pod's agent says so too.
func TestProxyToPodAt(t *testing.T) {
	r := newRoad(t)
	for _, address := range []string{"10.61.0.5:80", "[fd00:61::5]:80", "192.0.2.1:80", "[2001:db8::1]:80", "10.61.0.6:80", "127.0.0.1:80"} {
		r.serve(address, nil)
	}
	r.node("n", 10250, internal("192.0.2.1"), internal("2001:db8::1"), corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "203.0.113.1"})
	r.node("loop", 10250, internal("192.0.2.1"), internal("127.0.0.1"))
	for name, tc := range map[string]struct {
		at     string
		host   string // the node whose network the pod has
		phase  corev1.PodPhase
		code   int
		want   string
		dialed string
	}{
		"first":                {at: "10.61.0.5", code: 200, dialed: "10.61.0.5:80"},
		"second":               {at: "fd00:61::5", code: 200, dialed: "[fd00:61::5]:80"},
		"in a disguise":        {at: "::ffff:10.61.0.5", code: 200, dialed: "10.61.0.5:80"},
		"another pod's":        {at: "10.61.0.6", code: 400, want: "address not allowed: 10.61.0.6 is none of the pod's (10.61.0.5, fd00:61::5, 127.0.0.1)"},
		"loopback":             {at: "127.0.0.2", code: 400, want: "address not allowed"},
		"published loopback":   {at: "127.0.0.1", code: 400, want: "address not allowed: 127.0.0.1 is not one that other hosts reach"},
		"metadata":             {at: "169.254.169.254", code: 400, want: "address not allowed"},
		"with a zone":          {at: "fd00:61::5%lo", code: 400, want: "address not allowed"},
		"a name":               {at: "localhost", code: 400, want: "localhost"},
		"ended":                {at: "10.61.0.5", phase: corev1.PodFailed, code: 400, want: "has ended (Failed)"},
		"host":                 {at: "192.0.2.1", host: "n", code: 200, dialed: "192.0.2.1:80"},
		"host, second":         {at: "2001:db8::1", host: "n", code: 200, dialed: "[2001:db8::1]:80"},
		"host, external":       {at: "203.0.113.1", host: "n", code: 400, want: "is none of the pod's (192.0.2.1, 2001:db8::1)"},
		"host, by pod's words": {at: "10.61.0.5", host: "n", code: 400, want: "is none of the pod's"},
		"host's loopback":      {at: "127.0.0.1", host: "loop", code: 400, want: "address not allowed"},
		"no such host":         {at: "192.0.2.1", host: "none", code: 404, want: `nodes "none" not found`},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Status: corev1.PodStatus{
				Phase: tc.phase, PodIP: "10.61.0.5", PodIPs: []corev1.PodIP{{IP: "10.61.0.5"}, {IP: "fd00:61::5"}, {IP: "127.0.0.1"}},
			}}
			pod.Spec.NodeName, pod.Spec.HostNetwork = tc.host, tc.host != ""
			r.dialed = nil
			front := r.front(func(to rest.Responder) (http.Handler, error) {
				return r.ProxyToPodAt(r.Context(), pod, tc.at, reach.Backend{Port: "80", Path: "/"}, to)
			})
			code, text := r.ask(front, "GET", "/")
			if code != tc.code || !strings.Contains(text, tc.want) {
				t.Errorf("%d %s, want %d %s", code, text, tc.code, tc.want)
			}
			if want := slices.DeleteFunc([]string{tc.dialed}, func(s string) bool { return s == "" }); !slices.Equal(r.dialed, want) {
				t.Errorf("dialled %q, want %q", r.dialed, want)
			}
		})
	}
}

// An upgraded request is carried through as well, by the same rules.
func TestProxyUpgrades(t *testing.T) {
	r := newRoad(t)
	r.serve("10.61.0.5:80", nil)
	front := r.toPod(&corev1.Pod{Status: corev1.PodStatus{PodIP: "10.61.0.5"}}, reach.Backend{Path: "/"})
	u, err := url.Parse(front.URL)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(failAfter)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	answers := bufio.NewReader(conn)
	resp, err := http.ReadResponse(answers, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", resp, err)
	}
	fmt.Fprint(conn, "hello\n")
	if line, err := answers.ReadString('\n'); err != nil || line != "hello\n" {
		t.Errorf("%q, %v", line, err)
	}
}

func TestParseBackend(t *testing.T) {
	for id, want := range map[string]string{
		"p": "p||", "p:80": "p||80", "http:p:80": "p|http|80", "https:p:": "p|https|", ":p:1": "p||1",
		"": "", ":80": "", "a:b:c:d": "", "gopher:p:70": "", "p:0": "", "p:65536": "", "p:-1": "",
	} {
		name, to, err := reach.ParseBackend(id)
		got := name + "|" + to.Scheme + "|" + to.Port
		if want == "" && !apierrors.IsBadRequest(err) || want != "" && (err != nil || got != want) {
			t.Errorf("%q: %s, %v, want %s", id, got, err, strconv.Quote(want))
		}
	}
}
