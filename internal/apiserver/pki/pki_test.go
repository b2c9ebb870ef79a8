package pki_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"monopod.dev/monopod/internal/apiserver/pki"
)

func config(t *testing.T) pki.Config {
	return pki.Config{Dir: filepath.Join(t.TempDir(), "pki"), NodeName: "n1", ServerAddresses: []string{"10.0.0.1", "0.0.0.0", ""},
		AgentAddresses: []string{"10.0.0.2"}}
}

func ensure(t *testing.T, cfg pki.Config) (*pki.PKI, []string) {
	t.Helper()
	p, renewed, err := pki.Ensure(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p, renewed
}

func TestEnsureMakesThenKeeps(t *testing.T) {
	cfg := config(t)
	first, renewed := ensure(t, cfg)
	if len(renewed) != 7 {
		t.Errorf("first start issued %q, want six", renewed)
	}
	second, renewed := ensure(t, cfg)
	if len(renewed) != 0 {
		t.Errorf("second start issued %q again", renewed)
	}
	if !bytes.Equal(first.Admin.Cert, second.Admin.Cert) || !bytes.Equal(first.CA, second.CA) {
		t.Error("the second start has other certificates")
	}
	for path, want := range map[string]os.FileMode{cfg.Dir: 0o700, first.Admin.KeyFile: 0o600, first.CAFile: 0o644} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v (%v), want %v", path, info.Mode().Perm(), err, want)
		}
	}
}

// The certificates are used as they are meant: a client and a server that know only the authority shake hands.
func TestHandshake(t *testing.T) {
	p, _ := ensure(t, config(t))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(p.CA)
	for _, tc := range []struct {
		name           string
		server, client pki.Pair
		address        string
		user, group    string
	}{
		{"administrator", p.Server, p.Admin, "10.0.0.1", "kubernetes-admin", "system:masters"},
		{"service name", p.Server, p.Admin, "kubernetes.default.svc", "kubernetes-admin", "system:masters"},
		{"agent as client", p.Server, p.Node, "localhost", "system:node:n1", "system:nodes"},
		{"agent as server", p.Agent, p.APIServerAgent, "10.0.0.2", "kube-apiserver-kubelet-client", "system:masters"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			near, far := net.Pipe()
			defer near.Close()
			server := tls.Server(far, &tls.Config{Certificates: []tls.Certificate{keyPair(t, tc.server)}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert})
			done := make(chan error, 1)
			go func() { defer far.Close(); done <- server.Handshake() }()
			if err := tls.Client(near, &tls.Config{Certificates: []tls.Certificate{keyPair(t, tc.client)}, RootCAs: pool, ServerName: tc.address}).Handshake(); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			who := server.ConnectionState().PeerCertificates[0].Subject
			if who.CommonName != tc.user || len(who.Organization) != 1 || who.Organization[0] != tc.group {
				t.Errorf("the server sees %v, want user %q of group %q", who, tc.user, tc.group)
			}
		})
	}
}

func keyPair(t *testing.T, p pki.Pair) tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func TestEnsureReissues(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(t *testing.T, cfg *pki.Config, p *pki.PKI)
		want   []string // base names
	}{
		{"a new address", func(_ *testing.T, cfg *pki.Config, _ *pki.PKI) { cfg.ServerAddresses = []string{"10.9.9.9"} }, []string{"server.crt"}},
		{"a new node name", func(_ *testing.T, cfg *pki.Config, _ *pki.PKI) { cfg.NodeName = "n2" }, []string{"server.crt", "node.crt", "agent.crt"}},
		{"near the end", func(_ *testing.T, cfg *pki.Config, _ *pki.PKI) {
			cfg.Now = func() time.Time { return time.Now().Add(300 * 24 * time.Hour) }
		}, []string{"server.crt", "admin.crt", "node.crt", "agent.crt", "controllers.crt", "apiserver-agent.crt"}},
		{"a crash between key and certificate", func(t *testing.T, _ *pki.Config, p *pki.PKI) {
			write(t, p.Admin.KeyFile, p.Node.Key)
		}, []string{"admin.crt"}},
		{"a torn certificate", func(t *testing.T, _ *pki.Config, p *pki.PKI) { write(t, p.Node.CertFile, p.Node.Cert[:40]) }, []string{"node.crt"}},
		{"another authority's", func(t *testing.T, cfg *pki.Config, p *pki.PKI) {
			other, _ := ensure(t, config(t))
			write(t, p.Admin.KeyFile, other.Admin.Key)
			write(t, p.Admin.CertFile, other.Admin.Cert)
		}, []string{"admin.crt"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := config(t)
			p, _ := ensure(t, cfg)
			tc.change(t, &cfg, p)
			after, renewed := ensure(t, cfg)
			for i := range renewed {
				renewed[i] = filepath.Base(renewed[i])
			}
			if strings.Join(renewed, " ") != strings.Join(tc.want, " ") {
				t.Errorf("issued %q, want %q", renewed, tc.want)
			}
			if !bytes.Equal(after.CA, p.CA) {
				t.Error("the authority was replaced")
			}
		})
	}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAuthorityIsNeverReplacedInSilence(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, cfg *pki.Config, p *pki.PKI){
		"torn":   func(t *testing.T, _ *pki.Config, p *pki.PKI) { write(t, p.CAFile, p.CA[:20]) },
		"no key": func(t *testing.T, cfg *pki.Config, _ *pki.PKI) { os.Remove(filepath.Join(cfg.Dir, "ca.key")) },
		"expired": func(_ *testing.T, cfg *pki.Config, _ *pki.PKI) {
			cfg.Now = func() time.Time { return time.Now().AddDate(11, 0, 0) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t)
			p, _ := ensure(t, cfg)
			spoil(t, &cfg, p)
			if _, _, err := pki.Ensure(cfg); err == nil || !strings.Contains(err.Error(), "certificate authority") || !strings.Contains(err.Error(), "move the directory") {
				t.Errorf("error %v, want one that names the authority and what to do", err)
			}
		})
	}
}

func TestCrashInTheFirstStart(t *testing.T) {
	cfg := config(t)
	ensure(t, cfg)
	entries, err := os.ReadDir(cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "ca.key" {
			os.Remove(filepath.Join(cfg.Dir, e.Name()))
		}
	}
	if _, renewed := ensure(t, cfg); len(renewed) != 7 {
		t.Errorf("issued %q, want all six", renewed)
	}
}

func TestNodeClient(t *testing.T) {
	p, _ := ensure(t, config(t))
	pair, err := p.NodeClient("other")
	if err != nil {
		t.Fatal(err)
	}
	if cert := keyPair(t, pair).Leaf; cert.Subject.CommonName != "system:node:other" {
		t.Errorf("subject %v", cert.Subject)
	}
}
