package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/test/harness"
)

// awaitUnbound waits until a pod waits for devices before it has a node, and says so both to those who know Kubernetes and to those who know us.
func awaitUnbound(t *testing.T, n *harness.Node, name, words string) {
	t.Helper()
	harness.Eventually(t, "pod "+name+" waits: "+words, func() (bool, string) {
		var p corev1.Pod
		getPod(t, n, name, &p)
		scheduled, ready := conditionOf(&p, corev1.PodScheduled), conditionOf(&p, "monopod.dev/DevicesReady")
		return p.Spec.NodeName == "" && p.Status.Phase == corev1.PodPending && p.Status.Reason == "DevicesNotReady" && strings.Contains(p.Status.Message, words) &&
			scheduled.Status == corev1.ConditionFalse && scheduled.Reason == corev1.PodReasonUnschedulable && scheduled.Message == p.Status.Message &&
			ready.Status == corev1.ConditionFalse && ready.Message == p.Status.Message, fmt.Sprintf("node %q, %+v", p.Spec.NodeName, p.Status)
	})
}

func conditionOf(p *corev1.Pod, of corev1.PodConditionType) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == of {
			return c
		}
	}
	return corev1.PodCondition{}
}

// TestPodsWithoutANodeWaitForDevicesInOrder: what is said of pods that wait for devices is true of those that the binder places, too.
func TestPodsWithoutANodeWaitForDevicesInOrder(t *testing.T) {
	n := harness.StartNode(t, harness.Options{CDISpecs: map[string]string{"widget.json": deviceSpec(2)}})
	n.LoadImage(archive(t))
	n.Apply(devicePod("", "first", 1))
	n.Kubectl("wait", "--for=condition=Ready", "pod/first", "--timeout=60s")

	n.Apply(devicePod("", "huge", 3))
	awaitUnbound(t, n, "huge", "No node has 3 of example.com/widget now, so younger pods may start first.")
	n.Apply(devicePod("", "big", 1, 1))
	awaitUnbound(t, n, "big", "1 Insufficient example.com/widget.")
	n.Apply(devicePod("", "late", 1)) // there is one
	awaitUnbound(t, n, "late", "kept example.com/widget for pod default/big, which came first")
	if line := n.Kubectl("get", "pod", "late", "--no-headers"); !strings.Contains(line, "DevicesNotReady") {
		t.Errorf("kubectl get: %s", line)
	}

	n.Apply(strings.Replace(devicePod("", "impatient", 1), `"metadata": {`, `"metadata": {"annotations": {"monopod.dev/devices-deadline": "2s"}, `, 1))
	harness.Eventually(t, "the pod has waited long enough", func() (bool, string) {
		var p corev1.Pod
		getPod(t, n, "impatient", &p)
		return p.Status.Phase == corev1.PodFailed && p.Status.Reason == "DevicesNotReady" && strings.Contains(p.Status.Message, "for its devices, as long as its annotation"),
			fmt.Sprintf("%+v", p.Status)
	})
	n.Kubectl("delete", "pod", "impatient", "--timeout=60s")

	n.Kubectl("delete", "pod", "first", "--timeout=60s")
	n.Kubectl("wait", "--for=condition=Ready", "pod/big", "--timeout=60s")
	harness.Eventually(t, "its containers have both", func() (bool, string) {
		logs := n.Kubectl("logs", "big", "-c", "c0") + n.Kubectl("logs", "big", "-c", "c1")
		return logs == "has w0\nhas w1\n", logs
	})
	var big corev1.Pod
	getPod(t, n, "big", &big)
	if c := conditionOf(&big, "monopod.dev/DevicesReady"); c.Status != corev1.ConditionTrue || big.Status.Reason != "" || big.Status.Message != "" {
		t.Errorf("it waits no more, and says %+v", big.Status)
	}
	awaitUnbound(t, n, "late", "1 Insufficient example.com/widget.")
	n.Kubectl("delete", "pod", "big", "--timeout=60s")
	n.Kubectl("wait", "--for=condition=Ready", "pod/late", "--timeout=60s")

	// What nobody knows yet is waited for as well.
	gadget := strings.ReplaceAll(devicePod("", "gadget", 1), "example.com/widget", "example.com/gadget")
	n.Apply(gadget)
	awaitUnbound(t, n, "gadget", "No node offers example.com/gadget yet (there is example.com/widget); the pod starts when one does.")
	if err := os.WriteFile(filepath.Join(n.Dir, "cdi", "gadget.json"), []byte(strings.Replace(deviceSpec(1), "example.com/widget", "example.com/gadget", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	n.Kubectl("wait", "--for=condition=Ready", "pod/gadget", "--timeout=60s")
}
