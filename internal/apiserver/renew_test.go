package apiserver_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// fingerprint is a stored certificate as the server tells of who has authenticated by it.
func fingerprint(t *testing.T, i *instance, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(i.cfg.DataDir, "pki", name))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		t.Fatalf("%s is no PEM", name)
	}
	return fmt.Sprintf("X509SHA256=%x", sha256.Sum256(block.Bytes))
}

// credential is what a client authenticates by.
func credential(t *testing.T, c kubernetes.Interface) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	me, err := c.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(me.Status.UserInfo.Extra["authentication.kubernetes.io/credential-id"], " ")
}

// served is the certificate that the server shows to who connects now.
func served(t *testing.T, i *instance) string {
	t.Helper()
	conn := tls.Client(i.dial(t), &tls.Config{RootCAs: authority(i), ServerName: "127.0.0.1"})
	if err := conn.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("X509SHA256=%x", sha256.Sum256(conn.ConnectionState().PeerCertificates[0].Raw))
}

// A renewed certificate is served to the next who connects, and the clients of the server's own process authenticate by theirs without being made anew: the
// connections of the old one are gone, and what was watched on them is watched again.
func TestRenewedCertificatesAreUsedAtOnce(t *testing.T) {
	i := start(t, newConfig(t))
	defer i.end(t)
	clients := map[string]kubernetes.Interface{
		"controllers.crt": i.client(t, i.ControllersConfig()), "node.crt": i.client(t, i.NodeConfig("n1")),
	}
	for name, c := range clients {
		if got, want := credential(t, c), fingerprint(t, i, name); got != want {
			t.Errorf("the client of %s authenticates by %s, want %s", name, got, want)
		}
	}
	watch, err := clients["controllers.crt"].CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()

	// Nothing is to be renewed: nobody's connection is cut.
	if renewed, err := i.Renew(); err != nil || len(renewed) > 0 {
		t.Fatalf("renewed are %q, %v", renewed, err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "seen"}}
	if _, err := i.admin(t).CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for e := range watch.ResultChan() {
		if o, ok := e.Object.(metav1.Object); ok && o.GetName() == "seen" {
			break
		}
	}

	before := map[string]string{}
	for _, name := range []string{"admin", "controllers", "node", "server"} {
		before[name+".crt"] = fingerprint(t, i, name+".crt")
		if err := os.Remove(filepath.Join(i.cfg.DataDir, "pki", name+".crt")); err != nil {
			t.Fatal(err)
		}
	}
	renewed, err := i.Renew()
	if err != nil || len(renewed) != len(before) {
		t.Fatalf("renewed are %q, %v", renewed, err)
	}
	for name, old := range before {
		if fingerprint(t, i, name) == old {
			t.Errorf("%s is the old one", name)
		}
	}
	for name, c := range clients {
		if got, want := credential(t, c), fingerprint(t, i, name); got != want {
			t.Errorf("the client of %s authenticates by %s, want %s", name, got, want)
		}
	}
	if got, want := served(t, i), fingerprint(t, i, "server.crt"); got != want {
		t.Errorf("served is %s, want %s", got, want)
	}
	if got, want := credential(t, i.admin(t)), fingerprint(t, i, "admin.crt"); got != want {
		t.Errorf("the administrator authenticates by %s, want %s", got, want)
	}
	ended := time.After(time.Minute)
	for open := true; open; {
		select {
		case _, open = <-watch.ResultChan():
		case <-ended:
			t.Fatal("the watch goes on by the old certificate")
		}
	}
}

// The clients of the server's own process, and its HTTPS, have nothing that looks at certificates again and again. (A copy of the configuration without
// credentials has none.)
func TestCertificatesWakeNobody(t *testing.T) {
	i := start(t, newConfig(t))
	defer i.end(t)
	for _, config := range []*rest.Config{i.ControllersConfig(), i.NodeConfig("n1"), i.AdminConfig()} {
		credential(t, i.client(t, config))
		if who := nobody(t, i, config); who != "" {
			t.Errorf("without credentials a client is %s", who)
		}
	}
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 2); err != nil {
		t.Fatal(err)
	}
	for one := range strings.SplitSeq(all.String(), "\n\n") {
		if slices.ContainsFunc([]string{"updateUnfinishedWorkLoop", "dynamicClientCert", "DynamicServingCertificate"}, func(s string) bool { return strings.Contains(one, s) }) {
			t.Errorf("this wakes the process twice a second:\n%s", one)
		}
	}
}

// nobody is who the client of a configuration is without its credentials.
func nobody(t *testing.T, i *instance, config *rest.Config) string {
	t.Helper()
	c := i.client(t, rest.AnonymousClientConfig(config))
	me, err := c.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return ""
	}
	return me.Status.UserInfo.Username
}

// TestMoreNamesInTheCertificate: who gives a name when the authority is there already gets a certificate that is good for it, at the next start.
func TestMoreNamesInTheCertificate(t *testing.T) {
	cfg := newConfig(t)
	i := start(t, cfg)
	shows := func(i *instance, name string) error {
		conn := tls.Client(i.dial(t), &tls.Config{RootCAs: authority(i), ServerName: name})
		return conn.HandshakeContext(t.Context())
	}
	if err := shows(i, "node.example.com"); err == nil {
		t.Error("the certificate names what nobody has asked for")
	}
	i.end(t)
	cfg.CertSANs = []string{"node.example.com", "192.0.2.7"}
	i = start(t, cfg)
	defer i.end(t)
	for _, name := range append(cfg.CertSANs, "localhost", "127.0.0.1") {
		if err := shows(i, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
