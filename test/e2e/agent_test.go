package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod.dev/monopod/test/harness"
)

// TestAgentAPI asks the agent's own HTTPS API, by the kubelet's paths, as callers of several kinds.
func TestAgentAPI(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte("good-token,admin,1,\"system:masters\"\nother-token,somebody,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := harness.StartNode(t, harness.Options{Args: []string{"--token-auth-file", tokens}})
	n.LoadImage(archive(t))
	n.Apply(pod("asked", "echo a line; exec sleep 3600", `"terminationGracePeriodSeconds": 0,`))
	n.Kubectl("wait", "--for=condition=Ready", "pod/asked", "--timeout=60s")
	awaitLog(t, n, "asked", "a line")

	pki := filepath.Join(n.Dir, "data", "pki")
	url := fmt.Sprintf("https://127.0.0.1:%s/containerLogs/default/asked/c",
		n.Kubectl("get", "node", n.Name, "-o", "jsonpath={.status.daemonEndpoints.kubeletEndpoint.Port}"))
	admin, err := tls.LoadX509KeyPair(filepath.Join(pki, "admin.crt"), filepath.Join(pki, "admin.key"))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		token string
		certs []tls.Certificate
		want  int
	}{
		"anonymous":                       {"", nil, http.StatusUnauthorized},
		"an unknown token":                {"no-token", nil, http.StatusUnauthorized},
		"a token that may not":            {"other-token", nil, http.StatusForbidden},
		"a token that may":                {"good-token", nil, http.StatusOK},
		"the administrator's certificate": {"", []tls.Certificate{admin}, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			code, body := ask(t, url, tc.token, filepath.Join(pki, "ca.crt"), tc.certs)
			if code != tc.want || tc.want == http.StatusOK && strings.TrimSpace(body) != "a line" {
				t.Errorf("%d %q, want %d", code, body, tc.want)
			}
		})
	}
	// The Kubernetes API itself knows nobody without credentials either.
	if code, _ := ask(t, apiURL(t, n)+"/api/v1/pods", "", filepath.Join(pki, "ca.crt"), nil); code != http.StatusUnauthorized {
		t.Errorf("an anonymous list of pods: %d, want 401", code)
	}
}

func ask(t *testing.T, url, token, caFile string, certs []tls.Certificate) (int, string) {
	t.Helper()
	pem, err := os.ReadFile(caFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certs}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func apiURL(t *testing.T, n *harness.Node) string {
	t.Helper()
	return strings.TrimSpace(n.Kubectl("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}"))
}
