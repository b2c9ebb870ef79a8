package admit

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/pods"
)

func list(pairs ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func nodeOf() *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{v1.LabelOSStable: "linux", "disk": "ssd", "cores": "8"}},
		Status: v1.NodeStatus{
			Allocatable: list("cpu", "2", "memory", "1Gi", "ephemeral-storage", "10Gi", "pods", "3", "hugepages-2Mi", "4Mi", "example.com/widget", "1"),
			NodeInfo:    v1.NodeSystemInfo{OperatingSystem: "linux"},
		},
	}
}

// podOf is a pod of one container that requests what the pairs say.
func podOf(pairs ...string) *v1.Pod {
	return &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: list(pairs...)}}}}}
}

func TestDecide(t *testing.T) {
	strict, always := v1.SupplementalGroupsPolicyStrict, v1.ContainerRestartPolicyAlways
	term := func(key string, op v1.NodeSelectorOperator, values ...string) *v1.Affinity {
		return &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
			NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}}},
		}}}
	}
	withPort := func(ip string, port int32, protocol v1.Protocol) *v1.Pod {
		p := podOf()
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: port, HostIP: ip, Protocol: protocol}}
		return p
	}
	pod := func(base *v1.Pod, change func(*v1.Pod)) *v1.Pod { change(base); return base }
	node := func(change func(*v1.Node)) *v1.Node { n := nodeOf(); change(n); return n }
	const affinityFailed = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
	const portsFailed = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
	const taintFailed = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
	noExecute := func(n *v1.Node) {
		n.Spec.Taints = []v1.Taint{{Key: "a", Effect: v1.TaintEffectNoSchedule}, {Key: "k", Value: "v", Effect: v1.TaintEffectNoExecute}}
	}
	for name, c := range map[string]struct {
		node   *v1.Node
		others []*v1.Pod
		pod    *v1.Pod
		want   Refusal
	}{
		"the node's own port": {pod: withPort("", 10250, v1.ProtocolTCP),
			want: Refusal{"NodePorts", "Predicate NodePorts failed: node(s) serve at a requested host port themselves: host port 10250/TCP is the agent's; use another one"}},
		"the node's own port, at one address": {pod: withPort("192.0.2.1", 10250, ""),
			want: Refusal{"NodePorts", "Predicate NodePorts failed: node(s) serve at a requested host port themselves: host port 10250/TCP is the agent's; use another one"}},
		"the same number of another protocol":                         {pod: withPort("", 10250, v1.ProtocolUDP)},
		"a pod of the host's network, where who listens first has it": {pod: pod(withPort("", 10250, v1.ProtocolTCP), func(p *v1.Pod) { p.Spec.HostNetwork = true })},
		"a pod without wishes":                                        {pod: podOf()},
		"just what is there":                                          {others: []*v1.Pod{podOf("cpu", "500m")}, pod: podOf("cpu", "1500m", "memory", "1Gi", "ephemeral-storage", "10Gi", "hugepages-2Mi", "4Mi")},
		"a thousand processors":                                       {pod: podOf("cpu", "1000"), want: Refusal{"OutOfcpu", "Node didn't have enough resource: cpu, requested: 1000000, used: 0, capacity: 2000"}},
		"too much beside the others":                                  {others: []*v1.Pod{podOf("cpu", "500m")}, pod: podOf("cpu", "1501m"), want: Refusal{"OutOfcpu", "Node didn't have enough resource: cpu, requested: 1501, used: 500, capacity: 2000"}},
		"memory":                                                      {others: []*v1.Pod{podOf("memory", "1")}, pod: podOf("memory", "1Gi"), want: Refusal{"OutOfmemory", "Node didn't have enough resource: memory, requested: 1073741824, used: 1, capacity: 1073741824"}},
		"ephemeral storage":                                           {pod: podOf("ephemeral-storage", "11G"), want: Refusal{"OutOfephemeral-storage", "Node didn't have enough resource: ephemeral-storage, requested: 11000000000, used: 0, capacity: 10737418240"}},
		"huge pages":                                                  {others: []*v1.Pod{podOf("hugepages-2Mi", "2Mi")}, pod: podOf("hugepages-2Mi", "4Mi"), want: Refusal{"OutOfhugepages-2Mi", "Node didn't have enough resource: hugepages-2Mi, requested: 4194304, used: 2097152, capacity: 4194304"}},
		"huge pages of no such size":                                  {pod: podOf("hugepages-1Gi", "1Gi"), want: Refusal{"OutOfhugepages-1Gi", "Node didn't have enough resource: hugepages-1Gi, requested: 1073741824, used: 0, capacity: 0"}},
		"a resource of Kubernetes' own that is not there":             {pod: podOf("kubernetes.io/x", "1"), want: Refusal{"OutOfkubernetes.io/x", "Node didn't have enough resource: kubernetes.io/x, requested: 1, used: 0, capacity: 0"}},
		"the fourth of three": {others: []*v1.Pod{podOf(), podOf(), podOf()}, pod: podOf("cpu", "1000"),
			want: Refusal{"OutOfpods", "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3"}},
		"devices never":                      {pod: podOf("example.com/widget", "5", "example.com/other", "1")},
		"the others have more than there is": {others: []*v1.Pod{podOf("cpu", "5")}, pod: podOf("memory", "1Mi")},
		"and a wish for what they have":      {others: []*v1.Pod{podOf("cpu", "5")}, pod: podOf("cpu", "1m"), want: Refusal{"OutOfcpu", "Node didn't have enough resource: cpu, requested: 1, used: 5000, capacity: 2000"}},
		"overhead": {pod: pod(podOf("cpu", "2"), func(p *v1.Pod) { p.Spec.Overhead = list("cpu", "1m") }),
			want: Refusal{"OutOfcpu", "Node didn't have enough resource: cpu, requested: 2001, used: 0, capacity: 2000"}},
		"sidecars": {pod: pod(podOf("cpu", "1500m"), func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{RestartPolicy: &always, Resources: v1.ResourceRequirements{Requests: list("cpu", "1")}}}
		}), want: Refusal{"OutOfcpu", "Node didn't have enough resource: cpu, requested: 2500, used: 0, capacity: 2000"}},
		"init containers are not summed up": {pod: pod(podOf("cpu", "1500m"), func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: list("cpu", "2")}}}
		})},
		"the pod's own": {pod: pod(podOf("cpu", "100m"), func(p *v1.Pod) { p.Spec.Resources = &v1.ResourceRequirements{Requests: list("cpu", "3")} }),
			want: Refusal{"OutOfcpu", "Node didn't have enough resource: cpu, requested: 3000, used: 0, capacity: 2000"}},

		"a selector that matches":  {pod: pod(podOf(), func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} })},
		"one that does not":        {pod: pod(podOf(), func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "hdd"} }), want: Refusal{"NodeAffinity", affinityFailed}},
		"an affinity that matches": {pod: pod(podOf(), func(p *v1.Pod) { p.Spec.Affinity = term("cores", v1.NodeSelectorOpGt, "4") })},
		"one that does":            {pod: pod(podOf(), func(p *v1.Pod) { p.Spec.Affinity = term("disk", v1.NodeSelectorOpNotIn, "ssd") }), want: Refusal{"NodeAffinity", affinityFailed}},
		"a preference is none":     {pod: pod(podOf(), func(p *v1.Pod) { p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{}} })},
		"resources come before affinity": {pod: pod(podOf("cpu", "3"), func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "hdd"} }),
			want: Refusal{"OutOfcpu", "Node didn't have enough resource: cpu, requested: 3000, used: 0, capacity: 2000"}},

		"a port twice":                {others: []*v1.Pod{withPort("", 80, "")}, pod: withPort("", 80, v1.ProtocolTCP), want: Refusal{"NodePorts", portsFailed}},
		"of another protocol":         {others: []*v1.Pod{withPort("", 80, "")}, pod: withPort("", 80, v1.ProtocolUDP)},
		"at all addresses":            {others: []*v1.Pod{withPort("10.0.0.1", 80, "")}, pod: withPort("0.0.0.0", 80, ""), want: Refusal{"NodePorts", portsFailed}},
		"one that all addresses have": {others: []*v1.Pod{withPort("", 80, "")}, pod: withPort("10.0.0.1", 80, ""), want: Refusal{"NodePorts", portsFailed}},
		"at another address":          {others: []*v1.Pod{withPort("10.0.0.1", 80, "")}, pod: withPort("10.0.0.2", 80, "")},
		"affinity comes before ports": {others: []*v1.Pod{withPort("", 80, "")}, pod: pod(withPort("", 80, ""), func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"a": "b"} }), want: Refusal{"NodeAffinity", affinityFailed}},

		"a taint that is not tolerated": {node: node(noExecute), pod: podOf(), want: Refusal{"TaintToleration", taintFailed}},
		"one that is": {node: node(noExecute), pod: pod(podOf(), func(p *v1.Pod) {
			p.Spec.Tolerations = []v1.Toleration{{Key: "k", Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}}
		})},
		"of a pod that says it is the node's": {node: node(noExecute), pod: pod(podOf(), func(p *v1.Pod) { p.Annotations = map[string]string{"kubernetes.io/config.source": "file"} }),
			want: Refusal{"TaintToleration", taintFailed}},

		"another system": {pod: pod(podOf("cpu", "9"), func(p *v1.Pod) { p.Spec.OS = &v1.PodOS{Name: v1.Windows} }), want: Refusal{"PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"}},
		"this system":    {pod: pod(podOf(), func(p *v1.Pod) { p.Spec.OS = &v1.PodOS{Name: v1.Linux} })},
		"the label of another": {pod: pod(podOf(), func(p *v1.Pod) { p.Labels = map[string]string{v1.LabelOSStable: "windows"} }), want: Refusal{"PodOSSelectorNodeLabelDoesNotMatch",
			"Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"}},
		"strict groups": {pod: pod(podOf(), func(p *v1.Pod) { p.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: &strict} }),
			want: Refusal{"SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicy=Strict is not supported in this node"}},
		"strict groups where they are known": {node: node(func(n *v1.Node) { n.Status.Features = &v1.NodeFeatures{SupplementalGroupsPolicy: new(true)} }),
			pod: pod(podOf(), func(p *v1.Pod) { p.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: &strict} })},
	} {
		t.Run(name, func(t *testing.T) {
			if c.node == nil {
				c.node = nodeOf()
			}
			used := Used{own: []pods.OwnPort{{Protocol: v1.ProtocolTCP, Port: 10250, Of: "the agent's"}}}
			for _, other := range c.others {
				need := NeedOf(other)
				used.Add(&need)
			}
			need := NeedOf(c.pod)
			var got Refusal
			if r := Decide(c.node, &used, c.pod, &need); r != nil {
				got = *r
			}
			if got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}
