//go:build kubelet

package kubelet

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// api is a client of the kubelet's HTTPS API, as an API server is one: with a certificate.
type api struct {
	cfg    *rest.Config
	client *http.Client
	caFile string
}

func newAPI(t testing.TB, dir string, port int) *api {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	// One certificate that is its own authority.
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	cert, err := x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	rawKey, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	a := &api{caFile: filepath.Join(dir, "ca.crt"), cfg: &rest.Config{Host: fmt.Sprintf("https://127.0.0.1:%d", port), TLSClientConfig: rest.TLSClientConfig{
		Insecure: true, CertData: certPEM, KeyData: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: rawKey})}}}
	if err := os.WriteFile(a.caFile, certPEM, 0o644); err != nil {
		t.Fatal(err)
	}
	if a.client, err = rest.HTTPClientFor(a.cfg); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *api) url(path string, query url.Values) string {
	return a.cfg.Host + path + "?" + query.Encode()
}

// open sends a GET and returns the body of an answer that is 200.
func (a *api) open(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url(path, query), nil)
	if err != nil {
		return nil, err
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return nil, fmt.Errorf("GET %s: %s: %s", path, resp.Status, said)
	}
	return resp.Body, nil
}

func (a *api) get(path string, query url.Values) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	body, err := a.open(ctx, path, query)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(body)
}

// pods are the kubelet's pods with their statuses, by the names of their manifests.
func (a *api) pods() (map[string]*corev1.Pod, error) {
	raw, err := a.get("/pods", nil)
	if err != nil {
		return nil, err
	}
	var list corev1.PodList
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, err
	}
	pods := map[string]*corev1.Pod{}
	for i := range list.Items {
		pods[list.Items[i].Labels["app"]] = &list.Items[i]
	}
	return pods, nil
}

func (a *api) summary() (*stats.Summary, error) {
	raw, err := a.get("/stats/summary", nil)
	if err != nil {
		return nil, err
	}
	var s stats.Summary
	return &s, json.Unmarshal(raw, &s)
}

func podPath(verb, pod, container string) string {
	path := "/" + verb + "/default/" + pod + "-" + nodeName
	if container != "" {
		path += "/" + container
	}
	return path
}

func (a *api) logs(pod, container string, query ...string) (string, error) {
	q := url.Values{}
	for i := 0; i < len(query); i += 2 {
		q.Set(query[i], query[i+1])
	}
	raw, err := a.get(podPath("containerLogs", pod, container), q)
	return string(raw), err
}

// session is an exec or an attach.
type session struct {
	verb, pod, container string
	command              []string
	protocol             string // spdy or websocket
	stdin                io.Reader
	tty                  bool
	sizes                remotecommand.TerminalSizeQueue
	ctx                  context.Context // nil: 30 s
	seen                 io.Writer       // also gets what comes on stdout, as it comes; nil: nobody does
}

func (a *api) stream(s session) (stdout, stderr string, err error) {
	q := url.Values{"output": {"1"}, "command": s.command}
	if s.stdin != nil {
		q.Set("input", "1")
	}
	if s.tty {
		q.Set("tty", "1")
	} else {
		q.Set("error", "1")
	}
	target := a.url(podPath(s.verb, s.pod, s.container), q)
	var ex remotecommand.Executor
	if s.protocol == "websocket" {
		ex, err = remotecommand.NewWebSocketExecutor(a.cfg, http.MethodGet, target)
	} else {
		var u *url.URL
		if u, err = url.Parse(target); err == nil {
			ex, err = remotecommand.NewSPDYExecutor(a.cfg, http.MethodPost, u)
		}
	}
	if err != nil {
		return "", "", err
	}
	ctx, cancel := s.ctx, func() {}
	if ctx == nil {
		ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
	}
	defer cancel()
	var out, errout bytes.Buffer
	o := remotecommand.StreamOptions{Stdin: s.stdin, Stdout: &out, Tty: s.tty, TerminalSizeQueue: s.sizes}
	if s.seen != nil {
		o.Stdout = io.MultiWriter(&out, s.seen)
	}
	if !s.tty {
		o.Stderr = &errout
	}
	err = ex.StreamWithContext(ctx, o)
	return out.String(), errout.String(), err
}

// sh runs a shell command in a container and returns what it wrote; that it fails, fails the test.
func (n *node) sh(pod, container, command string) string {
	n.Helper()
	out, errout, err := n.api.stream(session{verb: "exec", pod: pod, container: container, command: []string{"sh", "-c", command}})
	if err != nil {
		n.Errorf("in %s/%s: %s: %v: %s", pod, container, command, err, errout)
	}
	return out
}

// forward forwards a port of loopback to one of the pod's, until the test ends.
func (n *node) forward(pod string, port int) (local int) {
	n.Helper()
	rt, upgrader, err := spdy.RoundTripperFor(n.api.cfg)
	if err != nil {
		n.Fatal(err)
	}
	u, err := url.Parse(n.api.url(podPath("portForward", pod, ""), nil))
	if err != nil {
		n.Fatal(err)
	}
	stop, ready, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	pf, err := portforward.New(spdy.NewDialer(upgrader, &http.Client{Transport: rt}, http.MethodPost, u), []string{fmt.Sprintf("0:%d", port)}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		n.Fatal(err)
	}
	go func() { done <- pf.ForwardPorts() }()
	n.Cleanup(func() {
		close(stop)
		<-done
	})
	select {
	case <-ready:
	case err := <-done:
		done <- err
		n.Fatalf("port-forward: %v", err)
	}
	ports, err := pf.GetPorts()
	if err != nil {
		n.Fatal(err)
	}
	return int(ports[0].Local)
}
