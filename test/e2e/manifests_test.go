package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod.dev/monopod/test/harness"
)

// TestManifests: what lies in a directory is there when the node is, goes with its file though the node was killed meanwhile, and a directory that is not
// there is an error.
func TestManifests(t *testing.T) {
	n := harness.NewNode(t, harness.Options{})
	dir := filepath.Join(t.TempDir(), "manifests")
	if out, err := n.Command("--manifests", dir).CombinedOutput(); err == nil || !strings.Contains(string(out), "make the directory, or name another one") {
		t.Errorf("without the directory: %v\n%s", err, out)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "web.yaml")
	if err := os.WriteFile(file, []byte(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {nodeSelector: {no: node}, containers: [{name: c, image: none}]}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	n.Start("--manifests", dir)
	pods := func(want string) {
		t.Helper()
		harness.Eventually(t, "there are pods: "+want, func() (bool, string) {
			got := n.Kubectl("get", "pods", "-n", "shop", "-o", "jsonpath={.items[*].spec.containers[*].image}")
			return got == want, got
		})
	}
	pods("none none")
	n.Kill()
	if err := os.WriteFile(file, []byte("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bad.yaml"), []byte("kind: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	n.Start("--manifests", dir)
	pods("")
	harness.Eventually(t, "the node says what could not be applied", func() (bool, string) {
		got := n.Kubectl("get", "events", "--field-selector=reason=ManifestFailed", "-o", "jsonpath={.items[*].message}")
		return strings.Contains(got, "bad.yaml: document 1"), got
	})
}
