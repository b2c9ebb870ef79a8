package apiserver_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"monopod.dev/monopod/internal/apiserver"
)

// TestExtend: the API is served on more addresses, also one that the host has not got, and each is in the certificate; who verifies tokens is sent there.
func TestExtend(t *testing.T) {
	cfg := newConfig(t)
	for round := range 2 { // the certificate of the second start has the names already
		s, err := apiserver.New(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		missing := netip.MustParseAddr("192.0.2.1")
		if err := s.Extend(t.Context(), []netip.Addr{missing, netip.MustParseAddr("127.0.0.9")}); err != nil {
			t.Fatal(err)
		}
		if got, want := s.Advertised().String(), fmt.Sprintf("192.0.2.1:%d", s.Port()); got != want {
			t.Errorf("pods are told %s, want %s", got, want)
		}
		i := run(t, s, cfg)
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(i.AdminConfig().CAData)
		for _, name := range []string{"", missing.String(), "10.43.0.1", "kubernetes.default.svc.cluster.local"} {
			transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: name}}
			resp, err := (&http.Client{Transport: transport}).Get(fmt.Sprintf("https://127.0.0.9:%d/healthz", i.Port()))
			if err != nil {
				t.Errorf("start %d, as %q: %v", round, name, err)
				continue
			}
			resp.Body.Close()
			transport.CloseIdleConnections()
		}
		doc, err := i.admin(t).CoreV1().RESTClient().Get().AbsPath("/.well-known/openid-configuration").DoRaw(t.Context())
		if want := fmt.Sprintf(`"jwks_uri":"https://192.0.2.1:%d/openid/v1/jwks"`, s.Port()); err != nil || !strings.Contains(string(doc), want) {
			t.Errorf("the keys of tokens: %s, %v, want %s", doc, err, want)
		}
		i.end(t)
	}
}
