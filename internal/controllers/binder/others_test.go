package binder_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// like makes a pod with a name, the label app, and more of its spec as YAML.
func (w *world) like(name, app, spec string) *corev1.Pod {
	w.Helper()
	pod := &corev1.Pod{}
	text := fmt.Sprintf("{metadata: {name: %s, labels: {app: %s, version: one}}, spec: {containers: [{name: c, image: i}], %s}}", name, app, spec)
	if err := yaml.UnmarshalStrict([]byte(text), pod); err != nil {
		w.Fatal(err)
	}
	pod, err := w.client.CoreV1().Pods("default").Create(w.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return pod
}

// zones makes a node in each of zones, which it is called by.
func (w *world) zones(names ...string) {
	w.Helper()
	for _, name := range names {
		w.node(name, "cpu", "4")
		w.patchNode(name, fmt.Sprintf(`{"metadata": {"labels": {"zone": %q}}}`, name))
	}
}

func (w *world) patchNode(name, patch string) {
	w.Helper()
	if _, err := w.client.CoreV1().Nodes().Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
}

// rename gives a pod another label app.
func (w *world) rename(pod, app string) {
	w.Helper()
	patch := fmt.Sprintf(`{"metadata": {"labels": {"app": %q}}}`, app)
	if _, err := w.client.CoreV1().Pods("default").Patch(w.Context(), pod, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
}

// required is an affinity of a kind to the pods of an app in a zone, with more of its term.
func required(kind, app, more string) string {
	return fmt.Sprintf("affinity: {%s: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {matchLabels: {app: %s}}%s}]}}", kind, app, more)
}

// TestAffinityToPods: who waits for the sake of others is woken by what becomes of them.
func TestAffinityToPods(t *testing.T) {
	w := newWorld(t)
	w.bind()
	w.zones("a", "b")

	w.like("follower", "web", required("podAffinity", "db", ", matchLabelKeys: [version]"))
	w.untilWaiting("follower", "0/2 nodes are available: 2 node(s) didn't match pod affinity rules.")
	w.like("db", "db", "nodeSelector: {zone: b}")
	w.untilBound("follower", "b")

	const shunned = "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules."
	w.like("loner-a", "loner", required("podAntiAffinity", "loner", "")+", nodeSelector: {zone: a}")
	w.untilBound("loner-a", "a")
	w.like("loner-b", "loner", required("podAntiAffinity", "loner", ""))
	w.untilBound("loner-b", "b")
	w.like("loner-c", "loner", required("podAntiAffinity", "loner", ""))
	w.untilWaiting("loner-c", shunned)
	w.end("loner-a")
	w.untilBound("loner-c", "a")

	w.like("guest", "loner", "")
	w.untilWaiting("guest", "0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules.")
	w.rename("guest", "guest")
	w.until("guest", "bound", func(p *corev1.Pod) bool { return p.Spec.NodeName != "" })
	w.end("guest")

	w.like("shy", "shy", required("podAntiAffinity", "web", "")+", nodeSelector: {zone: b}")
	w.untilWaiting("shy", "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) didn't match pod anti-affinity rules.")
	w.rename("follower", "other")
	w.untilBound("shy", "b")
}

// TestAffinityAcrossNamespaces: what a namespace is called decides, too.
func TestAffinityAcrossNamespaces(t *testing.T) {
	w := newWorld(t)
	w.bind()
	w.zones("a", "b")
	w.like("db", "db", "nodeSelector: {zone: b}")
	w.untilBound("db", "b")
	w.like("web", "web", required("podAffinity", "db", ", namespaceSelector: {matchLabels: {team: red}}"))
	w.untilWaiting("web", "0/2 nodes are available: 2 node(s) didn't match pod affinity rules.")
	if _, err := w.client.CoreV1().Namespaces().Patch(t.Context(), "default", types.MergePatchType, []byte(`{"metadata": {"labels": {"team": "red"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.untilBound("web", "b")
}

// TestPodsAreSpread: those of one version only, and who waits for it is woken by those that come, go, or are about to.
func TestPodsAreSpread(t *testing.T) {
	const evenly = "topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}, matchLabelKeys: [version]}]"
	w := newWorld(t)
	w.bind()
	w.zones("a", "b")
	w.pod("busy", func(s *corev1.PodSpec) { s.NodeName = "b" }) // the number of pods says a
	got := w.like("web-1", "web", evenly)
	w.untilBound("web-1", "a")
	if e := got.Spec.TopologySpreadConstraints[0].LabelSelector.MatchExpressions; len(e) != 1 || e[0].Key != "version" || e[0].Operator != "In" || len(e[0].Values) != 1 || e[0].Values[0] != "one" {
		t.Errorf("the selector has %v of its version", e)
	}
	w.like("web-2", "web", evenly)
	w.untilBound("web-2", "b")
	w.patchNode("b", `{"spec": {"unschedulable": true}}`)
	w.like("web-3", "web", evenly)
	w.untilBound("web-3", "a")

	const waits = "0/2 nodes are available: 1 node(s) didn't match pod topology spread constraints, 1 node(s) were unschedulable."
	w.like("web-4", "web", evenly)
	w.untilWaiting("web-4", waits)
	w.like("there", "web", "nodeName: b") // comes without a binder
	w.untilBound("web-4", "a")

	w.like("web-5", "web", evenly)
	w.untilWaiting("web-5", waits)
	if err := w.client.CoreV1().Pods("default").Delete(t.Context(), "web-1", metav1.DeleteOptions{}); err != nil { // nobody ends it here
		t.Fatal(err)
	}
	w.untilBound("web-5", "a")

	w.like("web-6", "web", evenly)
	w.untilWaiting("web-6", waits)
	w.rename("web-3", "db")
	w.untilBound("web-6", "a")

	w.like("web-7", "web", evenly)
	w.untilWaiting("web-7", waits)
	w.patchNode("b", `{"metadata": {"labels": {"zone": null}}}`)
	w.untilBound("web-7", "a")
}
