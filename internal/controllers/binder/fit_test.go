package binder

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"monopod.dev/monopod/internal/pods"
)

// widget is an extended resource.
const widget = "example.com/widget"

func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func podWith(change func(*corev1.Pod), requests ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Resources: corev1.ResourceRequirements{Requests: list(requests...)},
		}}},
	}
	if change != nil {
		change(pod)
	}
	return pod
}

func nodeWith(change func(*corev1.Node)) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"disk": "ssd", "cores": "8"}},
		Status: corev1.NodeStatus{
			Allocatable: list("cpu", "2", "memory", "1Gi", "ephemeral-storage", "10Gi", "pods", "3", widget, "2"),
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	if change != nil {
		change(node)
	}
	return node
}

func term(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}
}

// requires is a pod that runs on nodes that are as one term says.
func requires(all ...corev1.NodeSelectorRequirement) *corev1.Pod {
	return podWith(func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: all}}}}}
	})
}

// prefers is a pod that likes nodes better that are as each term says, all of one weight.
func prefers(weight int32, each ...corev1.NodeSelectorRequirement) *corev1.Pod {
	return podWith(func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
		wishes := &p.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
		for _, e := range each {
			*wishes = append(*wishes, corev1.PreferredSchedulingTerm{Weight: weight, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{e}}})
		}
	})
}

// ownOfTest is what a node serves at, beside its agent.
func ownOfTest(string) []pods.OwnPort {
	return []pods.OwnPort{{Protocol: corev1.ProtocolTCP, Port: 6443, Of: "the API server's"}}
}

func TestFit(t *testing.T) {
	taint := func(effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: "gpu", Effect: effect}} }
	}
	tolerate := func(tolerations ...corev1.Toleration) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Tolerations = tolerations }
	}
	onHost := func(port int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: port, ContainerPort: port, Protocol: corev1.ProtocolTCP}}
		}
	}
	onHostAt := func(ip string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80, HostIP: ip, ContainerPort: 80, Protocol: corev1.ProtocolTCP}}
		}
	}
	const unmatched = "node(s) didn't match Pod's node affinity/selector"
	const untolerated = "node(s) had untolerated taint {dedicated: gpu}"
	for _, tc := range []struct {
		name   string
		pod    *corev1.Pod
		node   *corev1.Node
		others []*corev1.Pod
		want   []string
	}{
		{name: "nothing asked"},
		{name: "all of it", pod: podWith(nil, "cpu", "2", "memory", "1Gi", widget, "2")},
		{name: "cpu", pod: podWith(nil, "cpu", "2001m"), want: []string{"Insufficient cpu"}},
		{name: "memory", pod: podWith(nil, "memory", "1025Mi"), want: []string{"Insufficient memory"}},
		{name: "ephemeral storage", pod: podWith(nil, "ephemeral-storage", "11Gi"), want: []string{"Insufficient ephemeral-storage"}},
		{name: "extended resource", pod: podWith(nil, widget, "3"), want: []string{"Insufficient " + widget}},
		{name: "resource that nobody offers", pod: podWith(nil, "example.com/unheard", "1"), want: []string{"Insufficient example.com/unheard"}},
		{name: "zero of a resource that nobody offers", pod: podWith(nil, "example.com/unheard", "0")},
		{name: "several at once, compute first", pod: podWith(nil, "cpu", "3", "memory", "2Gi", "a.example/x", "1"),
			want: []string{"Insufficient cpu", "Insufficient memory", "Insufficient a.example/x"}},
		{name: "the sum with others", pod: podWith(nil, "cpu", "1", widget, "1"),
			others: []*corev1.Pod{podWith(nil, "cpu", "600m", widget, "1"), podWith(nil, "cpu", "401m", widget, "1")},
			want:   []string{"Insufficient cpu", "Insufficient " + widget}},
		{name: "just beside others", pod: podWith(nil, "cpu", "1", widget, "1"),
			others: []*corev1.Pod{podWith(nil, "cpu", "1", widget, "1")}},
		{name: "a resource that is overbooked but not asked for", pod: podWith(nil, "cpu", "1"),
			others: []*corev1.Pod{podWith(nil, widget, "5")}},
		{name: "a pod on the node that asks for more than there is has nothing", pod: podWith(nil, widget, "2"),
			others: []*corev1.Pod{podWith(nil, widget, "3")}},
		{name: "but its memory", pod: podWith(nil, "memory", "1Mi", widget, "2"),
			others: []*corev1.Pod{podWith(nil, "memory", "1Gi", widget, "3")}, want: []string{"Insufficient memory"}},
		{name: "one that runs has got what it asks for, before a device fell ill", pod: podWith(nil, widget, "1"),
			others: []*corev1.Pod{podWith(func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }, widget, "3")}, want: []string{"Insufficient " + widget}},
		{name: "places", others: []*corev1.Pod{podWith(nil), podWith(nil), podWith(nil)}, want: []string{"Too many pods"}},
		{name: "init containers count with their maximum", pod: podWith(func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list("cpu", "3")}}}
		}, "cpu", "1"), want: []string{"Insufficient cpu"}},

		{name: "selector", pod: podWith(func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} })},
		{name: "selector of another node", pod: podWith(func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "tape"} }),
			want: []string{"node(s) didn't match Pod's node affinity/selector"}},
		{name: "every operator", pod: requires(term("disk", "In", "ssd", "nvme"), term("disk", "NotIn", "tape"), term("disk", "Exists"), term("gpu", "DoesNotExist"), term("cores", "Gt", "7"), term("cores", "Lt", "9"))},
		{name: "not in", pod: requires(term("disk", "NotIn", "ssd")), want: []string{unmatched}},
		{name: "not in of a label that is not there", pod: requires(term("gpu", "NotIn", "a"))},
		{name: "exists", pod: requires(term("gpu", "Exists")), want: []string{unmatched}},
		{name: "does not exist", pod: requires(term("disk", "DoesNotExist")), want: []string{unmatched}},
		{name: "above", pod: requires(term("cores", "Gt", "8")), want: []string{unmatched}},
		{name: "below", pod: requires(term("cores", "Lt", "8")), want: []string{unmatched}},
		{name: "above of what is no number", pod: requires(term("disk", "Gt", "1")), want: []string{unmatched}},
		{name: "above what is no number", pod: requires(term("cores", "Gt", "few")), want: []string{unmatched}},
		{name: "all of a term", pod: requires(term("disk", "Exists"), term("gpu", "Exists")), want: []string{unmatched}},
		{name: "one of the terms", pod: podWith(func(p *corev1.Pod) {
			*p = *requires(term("gpu", "Exists"))
			terms := &p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			*terms = append(*terms, corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{term("metadata.name", "In", "n")}})
		})},
		{name: "another node's name", pod: podWith(func(p *corev1.Pod) {
			*p = *requires()
			p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields = []corev1.NodeSelectorRequirement{term("metadata.name", "NotIn", "n")}
		}), want: []string{unmatched}},
		{name: "a term about nothing", pod: requires(), want: []string{unmatched}},
		{name: "affinity and selector", pod: podWith(func(p *corev1.Pod) {
			*p = *requires(term("disk", "Exists"))
			p.Spec.NodeSelector = map[string]string{"disk": "tape"}
		}), want: []string{unmatched}},
		{name: "a wish", pod: prefers(100, term("disk", "In", "tape"))},
		{name: "sidecars count beside the others", pod: podWith(func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{RestartPolicy: new(corev1.ContainerRestartPolicyAlways), Resources: corev1.ResourceRequirements{Requests: list("cpu", "1500m")}}}
		}, "cpu", "1"), want: []string{"Insufficient cpu"}},
		{name: "what the pod asks for as a whole", pod: podWith(func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: list("cpu", "3", "memory", "1Mi")}
		}, "cpu", "1"), want: []string{"Insufficient cpu"}},

		{name: "cordoned", node: nodeWith(func(n *corev1.Node) { n.Spec.Unschedulable = true }), want: []string{"node(s) were unschedulable"}},
		{name: "cordoned, tolerated", node: nodeWith(func(n *corev1.Node) { n.Spec.Unschedulable = true }),
			pod: podWith(tolerate(corev1.Toleration{Operator: corev1.TolerationOpExists}))},
		{name: "not ready", node: nodeWith(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }),
			want: []string{"node(s) were not ready"}},
		{name: "never heard of", node: nodeWith(func(n *corev1.Node) { n.Status.Conditions = nil }), want: []string{"node(s) were not ready"}},
		{name: "the first broken rule speaks", node: nodeWith(func(n *corev1.Node) { n.Spec.Unschedulable = true }),
			pod: podWith(nil, "cpu", "9"), want: []string{"node(s) were unschedulable"}},

		{name: "NoSchedule", node: nodeWith(taint(corev1.TaintEffectNoSchedule)), want: []string{untolerated}},
		{name: "NoExecute", node: nodeWith(taint(corev1.TaintEffectNoExecute)), want: []string{untolerated}},
		{name: "PreferNoSchedule", node: nodeWith(taint(corev1.TaintEffectPreferNoSchedule))},
		{name: "tolerated by value", node: nodeWith(taint(corev1.TaintEffectNoSchedule)),
			pod: podWith(tolerate(corev1.Toleration{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}))},
		{name: "tolerated by key, every effect", node: nodeWith(taint(corev1.TaintEffectNoExecute)),
			pod: podWith(tolerate(corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpExists}))},
		{name: "another value", node: nodeWith(taint(corev1.TaintEffectNoSchedule)),
			pod: podWith(tolerate(corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "fpga"})), want: []string{untolerated}},
		{name: "another effect", node: nodeWith(taint(corev1.TaintEffectNoExecute)),
			pod:  podWith(tolerate(corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})),
			want: []string{untolerated}},

		{name: "free host port", pod: podWith(onHost(80)), others: []*corev1.Pod{podWith(onHost(81))}},
		{name: "host ports at two addresses", pod: podWith(onHostAt("10.0.0.1")), others: []*corev1.Pod{podWith(onHostAt("10.0.0.2"))}},
		{name: "a host port that is taken at all addresses", pod: podWith(onHostAt("10.0.0.1")), others: []*corev1.Pod{podWith(onHostAt("0.0.0.0"))},
			want: []string{"node(s) didn't have free ports for the requested pod ports"}},
		{name: "the agent's port", pod: podWith(onHost(10250)), node: nodeWith(func(n *corev1.Node) { n.Status.DaemonEndpoints.KubeletEndpoint.Port = 10250 }),
			want: []string{"node(s) served at a requested host port themselves (host port 10250/TCP is the agent's)"}},
		{name: "the API server's port", pod: podWith(onHost(6443)), want: []string{"node(s) served at a requested host port themselves (host port 6443/TCP is the API server's)"}},
		{name: "the API server's port, of a pod of the host's network", pod: func() *corev1.Pod { p := podWith(onHost(6443)); p.Spec.HostNetwork = true; return p }()},
		{name: "taken host port", pod: podWith(onHost(80)), others: []*corev1.Pod{podWith(onHost(80))},
			want: []string{"node(s) didn't have free ports for the requested pod ports"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod, node := tc.pod, tc.node
			if pod == nil {
				pod = podWith(nil)
			}
			if node == nil {
				node = nodeWith(nil)
			}
			var got []string
			in := cluster{own: ownPorts(ownOfTest)}
			for _, l := range in.survey(pod).fit(place{node: node, pods: tc.others}) {
				got = append(got, l.why)
				if want := strings.HasPrefix(l.why, "Insufficient ") && strings.Contains(l.why, "/"); l.devices != want {
					t.Errorf("%q is for want of devices: %v, want %v", l.why, l.devices, want)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("reasons %q, want %q", got, tc.want)
			}
		})
	}
}

// TestBook: what is on nodes is what the watch shows, and what was bound since; whoever comes, changes or goes, it is as if reckoned anew.
func TestBook(t *testing.T) {
	var b book
	on := func(node string) (all []*corev1.Pod) {
		b.look([]*corev1.Node{nodeWith(func(n *corev1.Node) { n.Name = node })}, func(p []place) {
			all = slices.Clone(p[0].pods)
			fresh := holdingsOf(all)
			for name, sum := range p[0].holds.used {
				if sum.Cmp(fresh.used[name]) != 0 {
					t.Errorf("%s has %s of %s in use, of its pods %s", node, sum.String(), name, ptr.To(fresh.used[name]).String())
				}
			}
			if len(p[0].holds.devices) != len(fresh.devices) || len(p[0].holds.social) != len(fresh.social) || len(p[0].holds.ports) != len(fresh.ports) {
				t.Errorf("%s: %+v, reckoned anew %+v", node, p[0].holds, fresh)
			}
		})
		return all
	}
	pod := podWith(nil, widget, "1", "cpu", "100m")
	pod.UID = "pod"
	b.assume(pod, "n")
	if got := on("n"); len(got) != 1 || got[0].Spec.NodeName != "n" || !b.has(pod.UID) {
		t.Fatalf("assumed on n: %v, want the pod", got)
	}
	if got := on("other"); len(got) != 0 {
		t.Errorf("assumed on another node: %v", got)
	}
	if pod.Spec.NodeName != "" {
		t.Error("the caller's pod was changed")
	}
	shown := pod.DeepCopy()
	shown.Spec.NodeName, shown.Status.Phase = "n", corev1.PodRunning
	b.show(shown)
	if got := on("n"); len(got) != 1 || got[0] != shown {
		t.Errorf("the watch shows the pod already: %v", got)
	}
	if b.fail(pod.UID) || !b.has(pod.UID) {
		t.Error("a pod that the watch shows could not be bound")
	}
	// What it has can change, and is told by its status too, in which its agent says what it was given.
	for _, cpu := range []struct {
		asks, has, want string
		less            bool
	}{{"100m", "100m", "100m", false}, {"300m", "100m", "300m", false}, {"300m", "300m", "300m", false}, {"200m", "300m", "300m", false}, {"200m", "200m", "200m", true}} {
		shown = shown.DeepCopy()
		shown.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse(cpu.asks)
		shown.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", AllocatedResources: list(widget, "1", "cpu", cpu.has)}}
		if less := b.show(shown); less != cpu.less {
			t.Errorf("a pod that asks for %s and has %s: it has less than before: %t", cpu.asks, cpu.has, less)
		}
		if on("n"); b.nodes["n"].used.Cpu().String() != cpu.want {
			t.Errorf("a pod that asks for %s and has %s is taken to have %s", cpu.asks, cpu.has, b.nodes["n"].used.Cpu())
		}
	}
	var many []*corev1.Pod
	for i := range 20 {
		p := podWith(nil, "cpu", fmt.Sprintf("%dm", 100+i), "memory", "1Mi")
		if i%2 == 0 {
			p = podWith(nil, widget, "1")
		}
		p.UID, p.Spec.NodeName = types.UID(fmt.Sprint(i)), []string{"n", "other"}[i%3/2]
		if i%4 == 0 {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: int32(i + 1)}}
		}
		if i%5 == 0 {
			p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}
		}
		many = append(many, p)
		b.show(p)
	}
	for _, i := range rand.Perm(len(many)) {
		if gone, node := b.remove(many[i].UID); gone != many[i] || node != many[i].Spec.NodeName {
			t.Errorf("removed %v from %s", gone, node)
		}
		on("n")
		on("other")
	}
	moved := shown.DeepCopy()
	moved.Spec.NodeName = "other"
	b.show(moved)
	if len(on("n")) != 0 || len(on("other")) != 1 {
		t.Error("a pod that is elsewhere than was thought has two places, or none")
	}
	b.remove(pod.UID)
	b.assume(pod, "n")
	if !b.fail(pod.UID) || b.has(pod.UID) || len(on("n")) != 0 {
		t.Error("a pod that could not be bound has a place")
	}
	if gone, _ := b.remove(pod.UID); gone != nil || len(b.nodes) != 0 {
		t.Errorf("removed twice: %v; left are %v", gone, b.nodes)
	}
}
