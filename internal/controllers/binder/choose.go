package binder

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/pods"
	"monopod.dev/monopod/internal/pods/allocated"
)

// choose returns the best of the nodes that can have the pod, or what it lacks on each node. older are those of the pods that wait for a node which came
// before it, the oldest first.
//
// First come, first served: a node where one of these stands in line for a device that the pod asks for is not for the pod, be the device free or
// not. So one that asks for many devices gets them as they become free, and is not passed by those that ask for few.
func choose(pod *corev1.Pod, in cluster, older []*corev1.Pod) (name string, lacks [][]lack) {
	known := in.survey(pod)
	var able []place
	for _, at := range in.places {
		l := known.fit(at)
		if l == nil {
			l = keptFor(older, pod, at, in)
		}
		if l != nil {
			lacks = append(lacks, l)
			continue
		}
		able = append(able, at)
	}
	if len(able) > 0 {
		return best(known, able).node.Name, nil
	}
	return "", lacks
}

// keptFor tells which older pod stands in line on a node for a device that the pod asks for; nil: none.
func keptFor(older []*corev1.Pod, pod *corev1.Pod, at place, in cluster) []lack {
	asks := devices(pod)
	if len(asks) == 0 {
		return nil
	}
	for _, o := range older {
		if resource := common(asks, o); resource != "" && inLine(o, at, in) {
			return []lack{{why: fmt.Sprintf("node(s) kept %s for pod %s/%s, which came first", resource, o.Namespace, o.Name), devices: true, behind: o}}
		}
	}
	return nil
}

// inLine says whether a pod that has no node waits for nothing on this one but those who have devices of the kinds that it asks for: it could run if
// they were gone. Somebody who asks for more than there is, or for whom the node is wrong or full anyhow, would keep the others waiting for nothing.
func inLine(pod *corev1.Pod, at place, in cluster) bool {
	asks := devices(pod)
	at.pods, at.holds = slices.DeleteFunc(slices.Clone(at.pods), func(o *corev1.Pod) bool { return common(asks, o) != "" }), nil
	return in.with(at).survey(pod).fit(at) == nil
}

// devices are the device resources that the containers of a pod ask for.
func devices(pod *corev1.Pod) map[corev1.ResourceName]bool {
	asks := map[corev1.ResourceName]bool{}
	for _, c := range pods.Containers(&pod.Spec) {
		for name, q := range allocated.Of(pod).Container(c.Name).Requests {
			if isDevice(name) && !q.IsZero() {
				asks[name] = true
			}
		}
	}
	return asks
}

// common is the first of the device resources that a pod asks for as well; empty: there is none.
func common(asks map[corev1.ResourceName]bool, pod *corev1.Pod) (first corev1.ResourceName) {
	for name := range devices(pod) {
		if asks[name] && (first == "" || name < first) {
			first = name
		}
	}
	return first
}

// lacksDevices says whether devices are among what a pod lacks somewhere.
func lacksDevices(lacks [][]lack) bool {
	return slices.ContainsFunc(lacks, func(onNode []lack) bool {
		return slices.ContainsFunc(onNode, func(l lack) bool { return l.devices })
	})
}

// behind is the first pod that stands in line before one with these lacks, on a node where it could be otherwise; nil: there is none.
func behind(lacks [][]lack) *corev1.Pod {
	for _, onNode := range lacks {
		for _, l := range onNode {
			if l.behind != nil {
				return l.behind
			}
		}
	}
	return nil
}

// explain puts what a pod lacks on each node into one sentence, in kube-scheduler's words, and adds why there are too few devices.
func explain(pod *corev1.Pod, places []place, lacks [][]lack) string {
	if len(lacks) == 0 {
		return "no nodes available to schedule pods"
	}
	if l := lacks[0]; len(l) > 0 && l[0].everywhere {
		return fmt.Sprintf("0/%d nodes are available: %s.", len(lacks), l[0].why)
	}
	count := map[string]int{}
	for _, onNode := range lacks {
		for _, l := range onNode {
			count[l.why]++
		}
	}
	var parts []string
	for why, n := range count {
		parts = append(parts, fmt.Sprintf("%d %s", n, why))
	}
	slices.Sort(parts)
	text := fmt.Sprintf("0/%d nodes are available: %s.", len(lacks), strings.Join(parts, ", "))
	if lacksDevices(lacks) {
		text += shortages(pod, places)
	}
	return text
}
