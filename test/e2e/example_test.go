package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod.dev/monopod/test/harness"
)

// TestExample is what `make run` shows, through the real kubectl: the example pod with its device, and a Deployment behind a Service.
func TestExample(t *testing.T) {
	root := harness.Root(t)
	spec, err := os.ReadFile(filepath.Join(root, "examples/cdi/example.com-widget.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	n := harness.StartNode(t, harness.Options{CDISpecs: map[string]string{"example.com-widget.yaml": string(spec)}})
	n.LoadImage(filepath.Join(root, "bin/hello.tar"))

	if got := n.Kubectl("get", "node", n.Name, "-o", `jsonpath={.status.allocatable.example\.com/widget}`); got != "2" {
		t.Errorf("allocatable example.com/widget: %q, want the two devices of the spec", got)
	}
	hello, err := os.ReadFile(filepath.Join(root, "examples/hello.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	n.Apply(string(hello))
	n.Kubectl("wait", "--for=condition=Ready", "pod/hello", "--timeout=60s")

	n.Kubectl("rollout", "status", "deployment/greeter", "--timeout=60s")

	table := n.Kubectl("get", "nodes,pods,deployments,services", "-o", "wide")
	for _, want := range []string{"node/" + n.Name, "Ready", "pod/hello", "2/2", "Running", "INTERNAL-IP", "NOMINATED NODE", "pod/greeter-", "deployment.apps/greeter", "service/greeter"} {
		if !strings.Contains(table, want) {
			t.Errorf("kubectl get nodes,pods,deployments,services -o wide lacks %q:\n%s", want, table)
		}
	}
	container := n.Kubectl("get", "pod", "hello", "-o", `jsonpath={.spec.containers[?(@.resources.limits.example\.com/widget)].name}`)
	log := n.Kubectl("logs", "hello", "-c", container)
	for _, want := range []string{"WIDGET", "/dev/widget"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q, which CDI injects:\n%s", want, log)
		}
	}
	if out := n.Kubectl("exec", "hello", "-c", container, "--", "/hello", "show"); !strings.Contains(out, "hello") {
		t.Errorf("exec printed %q", out)
	}
	if out := n.Kubectl("exec", "hello", "-c", container, "--", "/hello", "ask", "http://greeter/"); !strings.HasPrefix(out, "hello from greeter-") {
		t.Errorf("http://greeter/ answers %q, want a pod of the Deployment", out)
	}
	n.Kubectl("delete", "-f", filepath.Join(root, "examples/hello.yaml"), "--cascade=foreground", "--timeout=60s")
	if out := n.Kubectl("get", "pods", "-o", "name"); out != "" {
		t.Errorf("after the deletion: %q", out)
	}
}
