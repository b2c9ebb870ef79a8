package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// serveTLS serves nothing but TLS handshakes, by a certificate for names and addresses, and returns where, and the certificate as the authority.
func serveTLS(t *testing.T, names []string, ips ...net.IP) (address string, ca []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kube-apiserver"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: names, IPAddresses: ips, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).HandshakeContext(t.Context())
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String(), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func adminKubeconfig(t *testing.T, server string, ca []byte) string {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["monopod"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	c.AuthInfos["monopod"] = &clientcmdapi.AuthInfo{Token: "secret"}
	c.Contexts["monopod"] = &clientcmdapi.Context{Cluster: "monopod", AuthInfo: "monopod"}
	c.CurrentContext = "monopod"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestKubeconfigForAnotherMachine: the copy has the other address, under a name of its own, for which the certificate is good.
func TestKubeconfigForAnotherMachine(t *testing.T) {
	address, ca := serveTLS(t, []string{"localhost", "node.example.com"}, net.IPv4(127, 0, 0, 1))
	_, port, _ := net.SplitHostPort(address)
	from := adminKubeconfig(t, "https://"+address, ca)
	for _, c := range []struct {
		server, want, warning, fault string
	}{
		{"localhost", "https://localhost:" + port, "", ""},
		{"https://localhost:" + port, "https://localhost:" + port, "", ""},
		{"node.example.com:8443", "https://node.example.com:8443", "nothing answers at node.example.com:8443", ""},
		{"127.0.0.1:1", "https://127.0.0.1:1", "--api-bind-address", ""},
		{"192.0.2.7", "", "", "--tls-san 192.0.2.7"},
		{"fd00::7", "", "", "--tls-san fd00::7"},
		{"[fd00::7]:6443", "", "", "does not name fd00::7 (it names localhost, node.example.com, 127.0.0.1)"},
		{"", "", "", "--server"}, {"a b", "", "", `"a b"`}, {"host:0", "", "", "--server"}, {"host:x", "", "", "--server"}, {"user@host", "", "", "--server"}, {"host/path", "", "", "--server"},
	} {
		k := kubeconfigCopy{from: from, server: c.server, name: "lab", shown: func(address string, roots *x509.CertPool) (*x509.Certificate, error) {
			if strings.HasPrefix(address, "node.example.com:") {
				return nil, errors.New("no such host") // no name server is asked
			}
			return shownCertificate(address, roots)
		}}
		raw, warning, err := k.make()
		if c.fault != "" {
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%q: %v, want %q", c.server, err, c.fault)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.server, err)
			continue
		}
		if (c.warning == "") != (warning == "") || !strings.Contains(warning, c.warning) {
			t.Errorf("%q: warning %q, want %q", c.server, warning, c.warning)
		}
		got, err := clientcmd.Load(raw)
		if err != nil {
			t.Fatal(err)
		}
		if got.CurrentContext != "lab" || got.Clusters["lab"] == nil || got.Clusters["lab"].Server != c.want || got.AuthInfos["lab"].Token != "secret" || len(got.Clusters) != 1 {
			t.Errorf("%q gives %s", c.server, raw)
		}
	}
}

// TestKubeconfigOfADeadNode: what cannot be checked is made all the same, with a warning; what is missing is an error that says what to do.
func TestKubeconfigOfADeadNode(t *testing.T) {
	address, ca := serveTLS(t, []string{"localhost"})
	dead, _ := net.Listen("tcp", "127.0.0.1:0")
	gone := dead.Addr().String()
	dead.Close()
	k := kubeconfigCopy{from: adminKubeconfig(t, "https://"+gone, ca), server: "node", name: "monopod", shown: shownCertificate}
	if raw, warning, err := k.make(); err != nil || len(raw) == 0 || !strings.Contains(warning, "was not checked") {
		t.Errorf("%q, %v", warning, err)
	}
	for from, want := range map[string]string{
		filepath.Join(t.TempDir(), "none"):                "start a node",
		adminKubeconfig(t, "https://"+address, nil):       "certificate authority",
		adminKubeconfig(t, "unix:///run/x", ca):           "https://HOST:PORT",
		adminKubeconfig(t, "https://"+address, []byte{1}): "certificate authority",
	} {
		k.from = from
		if _, _, err := k.make(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), from) {
			t.Errorf("%v, want %q and the file", err, want)
		}
	}
}

// TestKubeconfigFileIsPrivate: it has a private key in it.
func TestKubeconfigFileIsPrivate(t *testing.T) {
	address, ca := serveTLS(t, []string{"localhost"}, net.IPv4(127, 0, 0, 1))
	file := filepath.Join(t.TempDir(), "copy")
	args := []string{"kubeconfig", "--server", "localhost", "--kubeconfig", adminKubeconfig(t, "https://"+address, ca), "--output", file}
	if got := run(t.Context(), args); got != 0 {
		t.Fatalf("exit code %d", got)
	}
	if i, err := os.Stat(file); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", i, err)
	}
	if got := run(t.Context(), []string{"kubeconfig", "--server", "a b", "--kubeconfig", args[4]}); got != 2 {
		t.Errorf("exit code %d for a bad address, want 2", got)
	}
}
