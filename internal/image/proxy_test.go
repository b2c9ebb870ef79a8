package image_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"monopod.dev/monopod/test/registry"
)

// proxy asks one registry whatever it is asked for, and writes down by whom.
type proxy struct {
	*httptest.Server
	to string // host:port

	mu    sync.Mutex
	asked map[string]int // by method and host, and for what the client says of itself
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	p := &proxy{to: to, asked: map[string]int{}}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *proxy) count(what string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[what]
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	p.mu.Lock()
	p.asked[req.Host]++
	p.asked[req.Header.Get("Proxy-Authorization")]++
	p.mu.Unlock()
	if req.Method == http.MethodConnect {
		p.connect(w)
		return
	}
	at := *req.URL
	at.Host = p.to // registry.example is known to the proxy alone
	resp, err := http.DefaultTransport.RoundTrip(&http.Request{Method: req.Method, URL: &at, Header: req.Header})
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	for k, v := range resp.Header {
		w.Header()[k] = v
	}
	w.WriteHeader(resp.StatusCode)
	io.Copy(w, resp.Body) // the client may be gone
}

// connect is a tunnel.
func (p *proxy) connect(w http.ResponseWriter) {
	server, err := net.Dial("tcp", p.to)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer server.Close()
	w.WriteHeader(http.StatusOK)
	client, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	ended := make(chan struct{})
	go func() {
		io.Copy(server, client)            // either end may go
		server.(*net.TCPConn).CloseWrite() // as above
		close(ended)
	}()
	io.Copy(client, server) // as above
	client.Close()
	<-ended
}

// A proxy that the environment names is asked for every registry but those of NO_PROXY. It takes a process of its own:
// Go reads the environment once.
func TestProxyFromTheEnvironment(t *testing.T) {
	const ref = "registry.example/a/two:v1"
	pull := func(t *testing.T, f *fixture, env ...string) (string, error) {
		t.Helper()
		f.close()
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(append(os.Environ(), childRoot+"="+f.cfg.Root, childHosts+"="+f.cfg.RegistryConfigDir, childPull+"="+ref), env...)
		out, err := cmd.CombinedOutput()
		f.reopen()
		return string(out), err
	}
	b := build(t, two("", "by proxy"))
	t.Run("plain HTTP", func(t *testing.T) {
		r := registry.New(t)
		r.Push("a/two", "v1", b)
		p := newProxy(t, r.Addr)
		f := open(t)
		f.hosts("registry.example", "server = \"http://registry.example\"\n")
		if out, err := pull(t, f, "HTTP_PROXY="+p.URL, "NO_PROXY=elsewhere.example"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		img, err := f.Get(f.ctx, ref)
		if err != nil || f.read(img, "etc/shared") != "by proxy" {
			t.Errorf("%+v %v", img, err)
		}
		before := p.count("registry.example")
		if before == 0 {
			t.Errorf("the proxy was asked for %v", p.asked)
		}
		if out, err := pull(t, f, "HTTP_PROXY="+p.URL, "NO_PROXY=registry.example"); err == nil || !strings.Contains(out, "registry.example") {
			t.Errorf("a host of NO_PROXY, which nobody knows: %v: %s", err, out)
		}
		if p.count("registry.example") != before {
			t.Error("the proxy was asked for a host of NO_PROXY")
		}
	})
	t.Run("TLS", func(t *testing.T) {
		ca := registry.NewCA(t)
		r := registry.NewTLS(t, &tls.Config{Certificates: []tls.Certificate{ca.Pair(t, "registry.example")}})
		r.Push("a/two", "v1", b)
		p := newProxy(t, r.Addr)
		f := open(t)
		f.file("registry.example", "ca.pem", ca.PEM)
		f.hosts("registry.example", "server = \"https://registry.example\"\nca = \"ca.pem\"\n")
		withPassword := func(addr string) string { return fmt.Sprintf("HTTPS_PROXY=http://user:secret@%s", addr) }
		if out, err := pull(t, f, withPassword(p.Listener.Addr().String())); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		img, err := f.Get(f.ctx, ref)
		if err != nil || f.read(img, "etc/shared") != "by proxy" {
			t.Errorf("%+v %v", img, err)
		}
		if p.count("registry.example:443") == 0 || p.count("Basic dXNlcjpzZWNyZXQ=") == 0 {
			t.Errorf("the proxy was asked for %v", p.asked)
		}
		out, err := pull(t, f, withPassword(deadAddr(t)))
		if err == nil || !strings.Contains(out, "proxyconnect") || strings.Contains(out, "secret") {
			t.Errorf("a proxy that is down: %v: %s", err, out)
		}
	})
}
