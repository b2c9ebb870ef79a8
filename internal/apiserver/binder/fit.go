package binder

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	resourcehelper "k8s.io/component-helpers/resource"
)

// fit tells why pod cannot run on node, on which podsOnNode have their place already (pods that have ended are not
// among them); nil says that it can. The reasons are kube-scheduler's, and like there the first rule that is broken
// speaks, since a node that is cordoned need not be told that it is also short of memory.
func fit(pod *corev1.Pod, node *corev1.Node, podsOnNode []*corev1.Pod) (reasons []string) {
	for _, rule := range []func(*corev1.Pod, *corev1.Node, []*corev1.Pod) []string{
		nodeIsReady, nodeIsSchedulable, taintsAreTolerated, selectorMatches, portsAreFree, resourcesSuffice,
	} {
		if reasons := rule(pod, node, podsOnNode); len(reasons) > 0 {
			return reasons
		}
	}
	return nil
}

// nodeIsReady stands for the taint node.kubernetes.io/not-ready, which a cluster's node controller would set.
func nodeIsReady(pod *corev1.Pod, node *corev1.Node, _ []*corev1.Pod) []string {
	notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	if isReady(node) || tolerates(pod, &notReady) {
		return nil
	}
	return []string{"node(s) were not ready"}
}

func isReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func nodeIsSchedulable(pod *corev1.Pod, node *corev1.Node, _ []*corev1.Pod) []string {
	cordoned := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	if !node.Spec.Unschedulable || tolerates(pod, &cordoned) {
		return nil
	}
	return []string{"node(s) were unschedulable"}
}

func taintsAreTolerated(pod *corev1.Pod, node *corev1.Node, _ []*corev1.Pod) []string {
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect == corev1.TaintEffectPreferNoSchedule || tolerates(pod, taint) {
			continue
		}
		return []string{fmt.Sprintf("node(s) had untolerated taint {%s: %s}", taint.Key, taint.Value)}
	}
	return nil
}

func tolerates(pod *corev1.Pod, taint *corev1.Taint) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		switch {
		case t.Effect != "" && t.Effect != taint.Effect:
			return false
		case t.Key != "" && t.Key != taint.Key:
			return false
		case t.Operator == corev1.TolerationOpExists:
			return true
		default: // no operator is Equal; an empty key needs Exists
			return t.Key != "" && t.Value == taint.Value
		}
	})
}

func selectorMatches(pod *corev1.Pod, node *corev1.Node, _ []*corev1.Pod) []string {
	if labels.SelectorFromSet(pod.Spec.NodeSelector).Matches(labels.Set(node.Labels)) {
		return nil
	}
	return []string{"node(s) didn't match Pod's node affinity/selector"}
}

// hostPort is a port of the node; without an address it is that at all addresses.
type hostPort struct {
	protocol corev1.Protocol
	port     int32
	ip       string
}

func (p hostPort) conflicts(with hostPort) bool {
	return p.protocol == with.protocol && p.port == with.port && (p.ip == with.ip || p.ip == "" || with.ip == "")
}

func portsAreFree(pod *corev1.Pod, _ *corev1.Node, podsOnNode []*corev1.Pod) []string {
	wanted := hostPorts(pod)
	if len(wanted) == 0 {
		return nil
	}
	for _, other := range podsOnNode {
		for _, theirs := range hostPorts(other) {
			if slices.ContainsFunc(wanted, theirs.conflicts) {
				return []string{"node(s) didn't have free ports for the requested pod ports"}
			}
		}
	}
	return nil
}

func hostPorts(pod *corev1.Pod) (ports []hostPort) {
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].Ports {
			if p.HostPort == 0 {
				continue
			}
			ip := p.HostIP
			if ip == "0.0.0.0" || ip == "::" {
				ip = ""
			}
			ports = append(ports, hostPort{p.Protocol, p.HostPort, ip})
		}
	}
	return ports
}

func resourcesSuffice(pod *corev1.Pod, node *corev1.Node, podsOnNode []*corev1.Pod) []string {
	var reasons []string
	allocatable := node.Status.Allocatable
	if places := allocatable[corev1.ResourcePods]; int64(len(podsOnNode)+1) > places.Value() {
		reasons = append(reasons, "Too many pods")
	}
	wanted := requests(pod)
	used := corev1.ResourceList{}
	for _, other := range podsOnNode {
		for name, quantity := range requests(other) {
			if _, ok := wanted[name]; !ok {
				continue
			}
			sum := used[name]
			sum.Add(quantity)
			used[name] = sum
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(wanted), computeFirst) {
		want := wanted[name]
		if want.IsZero() {
			continue
		}
		// A resource that the node does not know is one of which it has nothing.
		sum := used[name]
		sum.Add(want)
		if sum.Cmp(allocatable[name]) > 0 {
			reasons = append(reasons, "Insufficient "+string(name))
		}
	}
	return reasons
}

func requests(pod *corev1.Pod) corev1.ResourceList {
	return resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
}

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

// explain puts the reasons of all nodes (one list a node) into one sentence.
func explain(reasons [][]string) string {
	if len(reasons) == 0 {
		return "no nodes available to schedule pods"
	}
	count := map[string]int{}
	for _, ofNode := range reasons {
		for _, r := range ofNode {
			count[r]++
		}
	}
	var parts []string
	for reason, n := range count {
		parts = append(parts, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(parts)
	return fmt.Sprintf("0/%d nodes are available: %s.", len(reasons), strings.Join(parts, ", "))
}
