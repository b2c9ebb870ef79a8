package admit

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"monopod.dev/monopod/internal/pods"
)

// Refusal says why the node does not take a pod: the reason and the message of the pod's status, a kubelet's, which people and controllers know. A
// kubelet writes "Pod was rejected: " before the message in the status, and the bare message in the event.
type Refusal struct{ Reason, Message string }

// Reasons of refusals. Others are "OutOf" and the name of a resource.
const (
	ReasonOSLabel      = "PodOSSelectorNodeLabelDoesNotMatch"
	ReasonOS           = "PodOSNotSupported"
	ReasonGroupsPolicy = "SupplementalGroupsPolicyNotSupported"
	ReasonNodeAffinity = "NodeAffinity"
	ReasonNodePorts    = "NodePorts"
	ReasonTaint        = "TaintToleration"
	ReasonInvalidNode  = "InvalidNodeInfo"
	reasonOutOf        = "OutOf"
	unknownNode        = "Kubelet cannot get node info."
)

// Decide says why the node does not take a pod now; nil: it does. Of several reasons it gives the first one, in a kubelet's order: what no other pod's end
// would help, what there is not enough of, where the pod wants to be, the ports, the taints. need is what the pod asks for, used what the others have.
func Decide(node *v1.Node, used *Used, pod *v1.Pod, need *Need) *Refusal {
	for _, rule := range []func(*v1.Node, *Used, *v1.Pod, *Need) *Refusal{system, groupsPolicy, room, affinity, ports, taints} {
		if r := rule(node, used, pod, need); r != nil {
			return r
		}
	}
	return nil
}

func system(node *v1.Node, _ *Used, pod *v1.Pod, _ *Need) *Refusal {
	os := node.Status.NodeInfo.OperatingSystem
	if label, ok := pod.Labels[v1.LabelOSStable]; ok && label != os {
		return &Refusal{ReasonOSLabel, "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"}
	}
	if pod.Spec.OS != nil && string(pod.Spec.OS.Name) != os {
		return &Refusal{ReasonOS, "Failed to admit pod as the OS field doesn't match node OS"}
	}
	return nil
}

// groupsPolicy: a runtime that merges groups all the same would give the pod's processes more than they are to have.
func groupsPolicy(node *v1.Node, _ *Used, pod *v1.Pod, _ *Need) *Refusal {
	sc := pod.Spec.SecurityContext
	if sc == nil || sc.SupplementalGroupsPolicy == nil || *sc.SupplementalGroupsPolicy != v1.SupplementalGroupsPolicyStrict {
		return nil
	}
	if f := node.Status.Features; f != nil && f.SupplementalGroupsPolicy != nil && *f.SupplementalGroupsPolicy {
		return nil
	}
	return &Refusal{ReasonGroupsPolicy, "SupplementalGroupsPolicy=Strict is not supported in this node"}
}

// room: nothing of a resource that the pod does not ask for is ever missing, even where the others have more than there is.
func room(node *v1.Node, used *Used, _ *v1.Pod, need *Need) *Refusal {
	have := node.Status.Allocatable
	short := func(name v1.ResourceName, wanted, taken, capacity int64) *Refusal {
		if wanted <= 0 || wanted <= capacity-taken {
			return nil
		}
		return &Refusal{reasonOutOf + string(name), fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name, wanted, taken, capacity)}
	}
	for _, r := range []*Refusal{
		short(v1.ResourcePods, 1, int64(used.pods), have.Pods().Value()),
		short(v1.ResourceCPU, need.MilliCPU, used.milliCPU, have.Cpu().MilliValue()),
		short(v1.ResourceMemory, need.Memory, used.memory, have.Memory().Value()),
		short(v1.ResourceEphemeralStorage, need.Storage, used.storage, have.StorageEphemeral().Value()),
	} {
		if r != nil {
			return r
		}
	}
	for _, name := range slices.Sorted(maps.Keys(need.Others)) {
		if r := short(name, need.Others[name], used.others[name], value(have[name])); r != nil {
			return r
		}
	}
	return nil
}

func value(q resource.Quantity) int64 { return q.Value() }

func predicate(name, why string) *Refusal {
	return &Refusal{name, "Predicate " + name + " failed: " + why}
}

func affinity(node *v1.Node, _ *Used, pod *v1.Pod, _ *Need) *Refusal {
	// A term that cannot be read matches nothing: validation lets none in.
	if matches, _ := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); !matches {
		return predicate(ReasonNodeAffinity, "node(s) didn't match Pod's node affinity/selector")
	}
	return nil
}

func ports(_ *v1.Node, used *Used, pod *v1.Pod, need *Need) *Refusal {
	if own, asked := pods.Owned(&pod.Spec, need.Ports, used.own); asked {
		return predicate(ReasonNodePorts, "node(s) serve at a requested host port themselves: "+own.String()+"; use another one")
	}
	if used.conflicts(need.Ports) {
		return predicate(ReasonNodePorts, "node(s) didn't have free ports for the requested pod ports")
	}
	return nil
}

// taints: only those that keep pods from running count here; NoSchedule is a scheduler's, and a pod that names its node has asked none.
func taints(node *v1.Node, _ *Used, pod *v1.Pod, _ *Need) *Refusal {
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		if t.Effect == v1.TaintEffectNoExecute && pods.Tolerates(pod.Spec.Tolerations, t) == nil {
			return predicate(ReasonTaint, "node(s) had taints that the pod didn't tolerate")
		}
	}
	return nil
}
