package apiserver

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// A certificate that was found good is not verified again for a while, and never taken for good after its end; one that was refused is looked at each
// time, and so is a chain.
func TestCertificates(t *testing.T) {
	now, verified := time.Now(), 0
	c := newCertificates(authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		verified++
		if r.TLS == nil {
			return nil, false, nil
		}
		if string(r.TLS.PeerCertificates[0].Raw) == "bad" {
			return nil, false, errors.New("bad")
		}
		return &authenticator.Response{User: &user.DefaultInfo{Name: string(r.TLS.PeerCertificates[0].Raw)}}, true, nil
	}))
	c.now = func() time.Time { return now }
	ask := func(names ...string) (string, int) {
		t.Helper()
		verified = 0
		req := &http.Request{}
		if len(names) > 0 {
			req.TLS = &tls.ConnectionState{}
		}
		for _, name := range names {
			end := now.Add(time.Hour)
			if name == "short" {
				end = time.Unix(1e9, 0)
			}
			req.TLS.PeerCertificates = append(req.TLS.PeerCertificates, &x509.Certificate{Raw: []byte(name), NotAfter: end})
		}
		resp, ok, err := c.AuthenticateRequest(req)
		if !ok || err != nil {
			return "", verified
		}
		return resp.User.GetName(), verified
	}
	want := func(name string, times int, certs ...string) {
		t.Helper()
		if n, v := ask(certs...); n != name || v != times {
			t.Errorf("%v: is %q, verified %d times; want %q, %d", certs, n, v, name, times)
		}
	}
	want("a", 1, "a")
	want("b", 1, "b")
	want("a", 0, "a")
	want("b", 0, "b")
	want("", 1)
	want("", 1, "bad")
	want("", 1, "bad")
	want("a", 1, "a", "b")
	want("a", 1, "a", "b")
	want("short", 1, "short")
	want("short", 1, "short")
	now = now.Add(certTrust)
	want("a", 1, "a")
	want("a", 0, "a")
	for n := range certsKnown {
		want(fmt.Sprint(n), 1, fmt.Sprint(n))
	}
	if len(c.known) > certsKnown {
		t.Errorf("%d certificates are remembered", len(c.known))
	}
}
