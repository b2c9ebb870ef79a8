package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/test/harness"
)

// TestAResourceThatSomebodyWritesToTheNode: what stands in the node's capacity and is no device (Kubernetes' page "Advertise Extended Resources for a Node") is
// counted, and given to pods as a number; neither a start of monopod nor a change of the devices takes it away.
func TestAResourceThatSomebodyWritesToTheNode(t *testing.T) {
	n := harness.StartNode(t, harness.Options{CDISpecs: map[string]string{"widget.json": deviceSpec(1)}})
	n.LoadImage(archive(t))
	dongles := func(node, name string, counts ...int) string {
		return strings.ReplaceAll(devicePod(node, name, counts...), "example.com/widget", "example.com/dongle")
	}
	n.Apply(dongles("", "first", 3))
	awaitUnbound(t, n, "first", "1 Insufficient example.com/dongle. No node offers example.com/dongle yet")
	n.Kubectl("patch", "node", n.Name, "--subresource=status", "--type=json", "-p", `[{"op": "add", "path": "/status/capacity/example.com~1dongle", "value": "4"}]`)
	n.Kubectl("wait", "--for=condition=Ready", "pod/first", "--timeout=60s")
	n.Apply(dongles(n.Name, "second", 2))
	awaitHeld(t, n, "second", "example.com/dongle is not ready: the node's status counts 4, the pod asks for 2, and other pods have 3")

	var before, after corev1.Pod
	getPod(t, n, "first", &before)
	n.Stop()
	if err := os.WriteFile(filepath.Join(n.Dir, "cdi", "widget.json"), []byte(deviceSpec(2)), 0o600); err != nil {
		t.Fatal(err)
	}
	n.Start()
	awaitHeld(t, n, "second", "the node's status counts 4, the pod asks for 2, and other pods have 3")
	getPod(t, n, "first", &after)
	if was, is := before.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]; is.ContainerID != was.ContainerID || is.State.Running == nil {
		t.Errorf("over a start of monopod the container went from %+v to %+v", was, is)
	}
	if got := n.Kubectl("get", "node", n.Name, "-o", `jsonpath={.status.capacity.example\.com/dongle} {.status.allocatable.example\.com/dongle} {.status.allocatable.example\.com/widget}`); got != "4 4 2" {
		t.Errorf("the node has %s, want 4 4 2", got)
	}
	n.Kubectl("delete", "pod", "first", "--timeout=60s")
	n.Kubectl("wait", "--for=condition=Ready", "pod/second", "--timeout=60s")
}
