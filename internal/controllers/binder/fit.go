package binder

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"monopod.dev/monopod/internal/pods"
)

// place is a node with the pods that have their place on it already; pods that have ended are not among them.
type place struct {
	node *corev1.Node
	pods []*corev1.Pod
	// holds is what these pods hold together; nil: that has still to be reckoned.
	holds *holdings
}

func (at *place) holdings() *holdings {
	if at.holds == nil {
		at.holds = holdingsOf(at.pods)
	}
	return at.holds
}

// ownPorts are those of a node.
func (b *Binder) ownPorts(node *corev1.Node) (own []pods.OwnPort) {
	if port := node.Status.DaemonEndpoints.KubeletEndpoint.Port; port != 0 {
		own = append(own, pods.OwnPort{Protocol: corev1.ProtocolTCP, Port: port, Of: "the agent's"})
	}
	if b.ownPortsOf != nil {
		own = append(own, b.ownPortsOf(node.Name)...)
	}
	return own
}

// lack is one reason why a pod cannot run on a node now.
type lack struct {
	why string
	// devices: it is for want of devices, for which pods stand in line.
	devices bool
	// behind is the pod that stands before it in line, where that is all.
	behind *corev1.Pod
}

// fit tells why pod cannot run on a node; nil says that it can. The reasons are kube-scheduler's, and like there the first rule that is broken
// speaks, since a node that is cordoned need not be told that it is also short of memory. What the node has for the pod comes last: who is kept from it
// by others does not wait for its devices.
func fit(pod *corev1.Pod, at place, known survey) []lack {
	for _, rule := range []func(*corev1.Pod, place) string{
		nodeIsReady, nodeIsSchedulable, taintsAreTolerated, selectorMatches, known.portsAreFree,
	} {
		if why := rule(pod, at); why != "" {
			return []lack{{why: why}}
		}
	}
	for i := range known.spreads {
		if why := known.spreads[i].lack(at.node); why != "" {
			return []lack{{why: why}}
		}
	}
	if why := known.company.lack(at.node); why != "" {
		return []lack{{why: why}}
	}
	return resourcesSuffice(pods.Requests(pod), at)
}

// nodeIsReady stands for the taints node.kubernetes.io/not-ready and unreachable until the node has them.
func nodeIsReady(pod *corev1.Pod, at place) string {
	notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	unreachable := corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}
	switch status := readiness(at.node); {
	case status == corev1.ConditionTrue,
		status == corev1.ConditionUnknown && pods.Tolerates(pod.Spec.Tolerations, &unreachable) != nil,
		status != corev1.ConditionUnknown && pods.Tolerates(pod.Spec.Tolerations, &notReady) != nil:
		return ""
	}
	return "node(s) were not ready"
}

// readiness is the status of a node's condition Ready; empty: it has none.
func readiness(node *corev1.Node) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

func nodeIsSchedulable(pod *corev1.Pod, at place) string {
	cordoned := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	if !at.node.Spec.Unschedulable || pods.Tolerates(pod.Spec.Tolerations, &cordoned) != nil {
		return ""
	}
	return "node(s) were unschedulable"
}

func taintsAreTolerated(pod *corev1.Pod, at place) string {
	for i := range at.node.Spec.Taints {
		taint := &at.node.Spec.Taints[i]
		if taint.Effect == corev1.TaintEffectPreferNoSchedule || pods.Tolerates(pod.Spec.Tolerations, taint) != nil {
			continue
		}
		return fmt.Sprintf("node(s) had untolerated taint {%s: %s}", taint.Key, taint.Value)
	}
	return ""
}

// preference is how much a pod would like to run on a node: the sum of the weights of its preferences that the node meets.
func preference(pod *corev1.Pod, node *corev1.Node) int64 {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return 0
	}
	terms, err := nodeaffinity.NewPreferredSchedulingTerms(pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	if err != nil { // one of them cannot be read, which keeps no pod from running
		return 0
	}
	return terms.Score(node)
}

func selectorMatches(pod *corev1.Pod, at place) string {
	if fits, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(at.node); fits && err == nil { // what cannot be read matches nothing
		return ""
	}
	return "node(s) didn't match Pod's node affinity/selector"
}

func (k survey) portsAreFree(pod *corev1.Pod, at place) string {
	wanted := pods.HostPorts(&pod.Spec)
	if len(wanted) == 0 {
		return ""
	}
	if k.own != nil {
		if own, asked := pods.Owned(&pod.Spec, wanted, k.own(at.node)); asked {
			return "node(s) served at a requested host port themselves (" + own.String() + ")"
		}
	}
	for other := range at.holdings().ports {
		if pods.Conflict(wanted, pods.HostPorts(&other.Spec)) {
			return "node(s) didn't have free ports for the requested pod ports"
		}
	}
	return ""
}

// resourcesSuffice tells what of the resources that a pod wants a node does not have for it.
func resourcesSuffice(wanted corev1.ResourceList, at place) (lacks []lack) {
	allocatable, holds := at.node.Status.Allocatable, at.holdings()
	if places := allocatable[corev1.ResourcePods]; int64(len(at.pods)+1) > places.Value() {
		lacks = append(lacks, lack{why: "Too many pods"})
	}
	inVain := holds.inVain(wanted, allocatable)
	for _, name := range slices.SortedFunc(maps.Keys(wanted), computeFirst) {
		want := wanted[name]
		if want.IsZero() {
			continue
		}
		// A resource that the node does not know is one of which it has nothing.
		sum := holds.used[name].DeepCopy()
		sum.Sub(inVain[name])
		sum.Add(want)
		if sum.Cmp(allocatable[name]) > 0 {
			lacks = append(lacks, lack{why: "Insufficient " + string(name), devices: isDevice(name)})
		}
	}
	return lacks
}

// inVain are the devices, of kinds that somebody wants, that pods of a node request in vain.
func (h *holdings) inVain(wanted, allocatable corev1.ResourceList) (sums corev1.ResourceList) {
	if len(h.devices) == 0 {
		return nil
	}
	var kinds []corev1.ResourceName
	for name := range wanted {
		if isDevice(name) {
			kinds = append(kinds, name)
		}
	}
	if len(kinds) == 0 {
		return nil
	}
	for of := range h.devices {
		if !waitsInVain(of.Pod, of.requests, allocatable) {
			continue
		}
		for _, name := range kinds {
			if quantity, has := of.requests[name]; has {
				sum := sums[name]
				sum.Add(quantity)
				if sums == nil {
					sums = corev1.ResourceList{}
				}
				sums[name] = sum
			}
		}
	}
	return sums
}

// waitsInVain says of a pod on a node that it has no devices and stands in nobody's way, because it asks for more than there are. Only pods that name
// their node by themselves get there with that, and those whose devices have fallen ill since.
func waitsInVain(pod *corev1.Pod, wanted, allocatable corev1.ResourceList) bool {
	if pod.Status.Phase == corev1.PodRunning {
		return false
	}
	for name, want := range wanted {
		if isDevice(name) && want.Cmp(allocatable[name]) > 0 {
			return true
		}
	}
	return false
}

// isDevice says that a resource is one of those that nodes grant as devices.
func isDevice(name corev1.ResourceName) bool { return pods.IsExtended(name) }

// computeFirst orders cpu, memory and other plain names before extended resources, which have a domain.
func computeFirst(a, b corev1.ResourceName) int {
	aExtended, bExtended := strings.Contains(string(a), "/"), strings.Contains(string(b), "/")
	switch {
	case aExtended == bExtended:
		return strings.Compare(string(a), string(b))
	case aExtended:
		return 1
	default:
		return -1
	}
}
