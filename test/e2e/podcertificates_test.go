package e2e

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

const certifiedImage = "localhost/openssl:latest"

// certifiedPod is a pod, not root, with a certificate of its own, with what it trusts of others, and with what the test publishes.
const certifiedPod = `
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  terminationGracePeriodSeconds: 0
  securityContext: {runAsUser: 1000}
  volumes:
  - name: certs
    projected:
      sources:
      - podCertificate: {signerName: monopod.dev/pod-identity, keyType: ECDSAP256, maxExpirationSeconds: 3600, credentialBundlePath: tls.pem, userAnnotations: {KEY: NAME}}
      - clusterTrustBundle: {signerName: monopod.dev/pod-identity, labelSelector: {}, path: ca.crt}
      - clusterTrustBundle: {name: roots, optional: true, path: roots.crt}
  containers:
  - name: c
    image: localhost/openssl:latest
    imagePullPolicy: Never
    command: [sh, -c, 'COMMAND']
    volumeMounts: [{name: certs, mountPath: /certs}]
`

// published is a bundle of nobody's.
func published(t *testing.T, pem string) string {
	t.Helper()
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "certificates.k8s.io/v1", "kind": "ClusterTrustBundle", "metadata": map[string]any{"name": "roots"}, "spec": map[string]any{"trustBundle": pem},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestPodCertificates: two pods know each other by certificates of the node's own signer, which are new after the agent has died; what is published reaches running pods; a pod whose certificate
// is denied is told why.
func TestPodCertificates(t *testing.T) {
	n := harness.NewNode(t, harness.Options{})
	n.Start()
	n.LoadImage(harness.Archive(t, certifiedImage, images.OpenSSL))
	start := func(name, key, command string) {
		t.Helper()
		n.Apply(strings.NewReplacer("NAME", name, "KEY", key, "COMMAND", command).Replace(certifiedPod))
	}
	const services, own = "monopod.dev/services", "-CAfile /certs/ca.crt -cert /certs/tls.pem -key /certs/tls.pem"
	start("server", services, "exec openssl s_server -accept 8443 -Verify 1 -verify_return_error -www "+own)
	start("client", services, "exec sleep 3600")
	start("denied", "example.com/a", "exec sleep 3600")
	n.Kubectl("wait", "--for=condition=Ready", "pod/server", "pod/client", "--timeout=120s")
	address := strings.TrimSpace(n.Kubectl("get", "pod", "server", "-o", "jsonpath={.status.podIP}"))

	speak := func(options string) (string, error) {
		return n.TryKubectl("", "exec", "client", "--", "sh", "-c",
			`printf 'GET / HTTP/1.0\r\n\r\n' | openssl s_client -quiet -verify_return_error -connect `+address+`:8443 `+options+` 2>&1`)
	}
	if said, err := speak(own + " -verify_hostname server.default.svc"); err != nil || !strings.Contains(said, "system:serviceaccount:default:default") {
		t.Errorf("they do not know each other: %v\n%s", err, said)
	}
	if said, err := speak("-CAfile /certs/ca.crt"); err == nil && strings.Contains(said, "HTTP/1.0 200") {
		t.Errorf("the server answers whom it does not know:\n%s", said)
	}
	if said, err := speak(own + " -verify_hostname other.default.svc"); err == nil {
		t.Errorf("the server is taken for another:\n%s", said)
	}
	if got := strings.TrimSpace(n.Kubectl("exec", "client", "--", "stat", "-L", "-c", "%u %a", "/certs/tls.pem")); got != "1000 600" {
		t.Errorf("the key's file is %s", got)
	}

	// A published bundle reaches pods that run, and goes from them.
	roots := func(want string) {
		t.Helper()
		harness.Eventually(t, "the pod has what is published", func() (bool, string) {
			got := n.Kubectl("exec", "client", "--", "cat", "/certs/roots.crt")
			return got == want, got
		})
	}
	roots("")
	authority, err := os.ReadFile(filepath.Join(n.Dir, "data", "pki", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	n.Apply(published(t, "between\n"+string(authority)))
	roots(string(authority))
	n.Kubectl("delete", "clustertrustbundle", "roots")
	roots("")

	// One that is denied is told of, and its pod waits.
	harness.Eventually(t, "the denial is told", func() (bool, string) {
		said := n.Kubectl("get", "events", "--field-selector=involvedObject.name=denied", "-o", "jsonpath={range .items[*]}{.reason}: {.message}{\"\\n\"}{end}")
		return strings.Contains(said, `was denied, reason="InvalidUnverifiedUserAnnotations"`) &&
			strings.Contains(said, `FailedMount: MountVolume.SetUp failed for volume "certs" : PodCertificateRequest was permanently denied: reason="InvalidUnverifiedUserAnnotations"`), said
	})
	if table := n.Kubectl("get", "podcertificaterequests"); !strings.Contains(table, "Denied") || !strings.Contains(table, "Issued") {
		t.Error(table)
	}

	// The agent that comes after one that died has no keys: it asks for others, and they serve as those before.
	leaf := func() []byte {
		t.Helper()
		_, rest := pem.Decode([]byte(n.Kubectl("exec", "client", "--", "cat", "/certs/tls.pem")))
		block, _ := pem.Decode(rest)
		if block == nil {
			t.Fatal("the bundle has no certificate after its key")
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			t.Fatal(err)
		}
		return block.Bytes
	}
	before := leaf()
	n.Kill()
	n.Start()
	harness.Eventually(t, "the certificate is renewed", func() (bool, string) { return !bytes.Equal(leaf(), before), "" })
	if said, err := speak(own + " -verify_hostname server.default.svc"); err != nil || !strings.Contains(said, "HTTP/1.0 200") {
		t.Errorf("the renewed certificate does not serve: %v\n%s", err, said)
	}
}
