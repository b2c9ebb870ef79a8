package binder

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestJudges: of all that is wrong with a node for a pod, and is put right one after the other, the first judge speaks.
func TestJudges(t *testing.T) {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	node := nodeWith(func(n *corev1.Node) {
		n.Status.Conditions, n.Spec.Unschedulable = nil, true
		n.Spec.Taints = []corev1.Taint{{Key: "k", Value: "v", Effect: corev1.TaintEffectNoExecute}}
	})
	onHost := func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
	}
	other := podWith(onHost)
	volume := stored("v", heldBy("c"), thereOn("x"))
	known := &stock{claims: []*corev1.PersistentVolumeClaim{claimed("c", boundTo("v"), func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost })}, volumes: []*corev1.PersistentVolume{volume}}
	pod := podWith(func(p *corev1.Pod) {
		onHost(p)
		p.Spec.Volumes = having("c").Spec.Volumes
		p.Spec.NodeSelector = map[string]string{"zone": "z"}
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
			{MaxSkew: 1, TopologyKey: "rack", WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selector}}
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "room", LabelSelector: selector}}}}
	}, "cpu", "9", widget, "9")
	for _, step := range []struct {
		want  []string
		mends func()
	}{
		{[]string{`persistentvolumeclaim "c" bound to non-existent persistentvolume "v"`}, func() { known.claims[0].Status.Phase = corev1.ClaimBound }},
		{[]string{"node(s) were not ready"}, func() {
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		}},
		{[]string{"node(s) were unschedulable"}, func() { node.Spec.Unschedulable = false }},
		{[]string{"node(s) had untolerated taint {k: v}"}, func() { node.Spec.Taints = nil }},
		{[]string{"node(s) didn't match Pod's node affinity/selector"}, func() { node.Labels["zone"] = "z" }},
		{[]string{"node(s) didn't have free ports for the requested pod ports"}, func() { other = podWith(nil) }},
		{[]string{"node(s) didn't match PersistentVolume's node affinity"}, func() { volume.Spec.NodeAffinity = nil }},
		{[]string{"node(s) didn't match pod topology spread constraints (missing required label)"}, func() { node.Labels["rack"] = "r" }},
		{[]string{"node(s) didn't match pod affinity rules"}, func() { node.Labels["room"], pod.Labels = "r", map[string]string{"app": "a"} }},
		{[]string{"Insufficient cpu", "Insufficient " + widget}, func() { pod.Spec.Containers[0].Resources.Requests = nil }},
		{nil, func() {}},
	} {
		at := place{node: node, pods: []*corev1.Pod{other}}
		var got []string
		for _, l := range (cluster{places: []place{at}, storage: known}).survey(pod).fit(at) {
			got = append(got, l.why)
		}
		if !slices.Equal(got, step.want) {
			t.Fatalf("reasons %q, want %q", got, step.want)
		}
		step.mends()
	}
}
