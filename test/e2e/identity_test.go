package e2e

import (
	"os"
	"strings"
	"testing"

	"monopod.dev/monopod/test/harness"
)

// testIdentity: what a pod finds in its volume lets whoever has it be the pod's service account, until the pod is gone.
func testIdentity(t *testing.T, n *harness.Node) {
	const dir = "/var/run/secrets/kubernetes.io/serviceaccount/"
	n.Apply(`{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}`)
	n.Apply(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "robot"}, "spec": {"serviceAccountName": "robot", "terminationGracePeriodSeconds": 0,
		"securityContext": {"runAsUser": 1000, "runAsGroup": 1000},
		"containers": [{"name": "c", "image": "` + busybox + `", "command": ["sleep", "3600"]}]}}`)
	n.Kubectl("wait", "--for=condition=Ready", "pod/robot", "--timeout=60s")
	if got := n.Kubectl("exec", "robot", "--", "cat", dir+"namespace"); got != "default" {
		t.Errorf("namespace %q", got)
	}
	if got := n.Kubectl("exec", "robot", "--", "stat", "-Lc", "%a %u", dir+"token"); strings.TrimSpace(got) != "600 1000" {
		t.Errorf("the token's mode and user are %q, want 600 1000", got)
	}
	token := n.Kubectl("exec", "robot", "--", "cat", dir+"token")
	ca := t.TempDir() + "/ca.crt"
	if err := os.WriteFile(ca, []byte(n.Kubectl("exec", "robot", "--", "cat", dir+"ca.crt")), 0o600); err != nil {
		t.Fatal(err)
	}
	server := strings.TrimSpace(n.Kubectl("config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"))
	// An empty kubeconfig: nothing but what was in the pod.
	asPod := []string{"--kubeconfig=/dev/null", "--server=" + server, "--certificate-authority=" + ca, "--token=" + token}
	who, err := n.TryKubectl("", append(asPod, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.extra.authentication\\.kubernetes\\.io/pod-name}")...)
	if err != nil || who != `system:serviceaccount:default:robot ["robot"]` {
		t.Errorf("the bearer is %s, %v", who, err)
	}
	if out, err := n.TryKubectl("", append(asPod, "get", "secrets")...); err == nil || !strings.Contains(err.Error(), `User "system:serviceaccount:default:robot" cannot list resource "secrets"`) {
		t.Errorf("it lists secrets: %s, %v", out, err)
	}
	n.Kubectl("delete", "pod", "robot")
	if out, err := n.TryKubectl("", append(asPod, "auth", "whoami")...); err == nil {
		t.Errorf("the token of a pod that is gone is good: %s", out)
	}
	n.Kubectl("delete", "serviceaccount", "robot")
}
