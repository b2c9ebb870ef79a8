package binder_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A pod with scheduling gates is not looked at, and keeps nobody from what it asks for, until the last gate is gone.
func TestAGatedPodIsNotLookedAt(t *testing.T) {
	w := newWorld(t)
	w.bind()
	w.node("n", "cpu", "4", widget, "1")
	w.pod("gated", func(s *corev1.PodSpec) { s.SchedulingGates = []corev1.PodSchedulingGate{{Name: "a"}, {Name: "b"}} }, widget, "1")
	w.pod("younger", nil, widget, "1") // is decided after the other
	w.untilBound("younger", "n")
	gated := func(p *corev1.Pod) bool {
		return p.Spec.NodeName == "" && len(p.Status.Conditions) == 1 && p.Status.Conditions[0].Reason == corev1.PodReasonSchedulingGated
	}
	w.until("gated", "gated", gated)

	take := func(patch string) {
		t.Helper()
		if _, err := w.client.CoreV1().Pods("default").Patch(t.Context(), "gated", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	take(`[{"op": "remove", "path": "/spec/schedulingGates/0"}, {"op": "add", "path": "/spec/nodeSelector", "value": {"disk": "ssd"}}]`)
	w.pod("third", nil)
	w.untilBound("third", "n")
	w.until("gated", "still gated", gated)
	take(`[{"op": "remove", "path": "/spec/schedulingGates"}]`)
	w.untilWaiting("gated", "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.")

	w.end("younger")
	node, err := w.client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Labels = map[string]string{"disk": "ssd"}
	if _, err := w.client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.untilBound("gated", "n")
	w.untilEvent("gated", "Scheduled", "Successfully assigned default/gated to n")
}

// Required affinity decides, also when the labels of nodes change; what is preferred chooses among those that are left.
func TestAffinityToNodes(t *testing.T) {
	w := newWorld(t)
	w.bind()
	w.node("a", "cpu", "4")
	w.node("b", "cpu", "4")
	label := func(name, disk string) {
		t.Helper()
		patch := `{"metadata": {"labels": {"disk": "` + disk + `"}}}`
		if _, err := w.client.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	wants := func(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
	}
	w.pod("required", func(s *corev1.PodSpec) {
		s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{wants("disk", corev1.NodeSelectorOpIn, "nvme", "ssd")}}}}
	})
	w.untilWaiting("required", "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.")
	label("b", "ssd")
	w.untilBound("required", "b")

	label("a", "tape")
	w.pod("preferred", func(s *corev1.PodSpec) { // b has a pod more
		s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
			{Weight: 1, Preference: wants("disk", corev1.NodeSelectorOpExists)}, {Weight: 5, Preference: wants("disk", corev1.NodeSelectorOpIn, "ssd")}}}}
	})
	w.untilBound("preferred", "b")
}
