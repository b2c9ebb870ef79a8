package binder

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

func selectorMatches(pod *corev1.Pod, at place) string {
	if fits, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(at.node); fits && err == nil { // what cannot be read matches nothing
		return ""
	}
	return "node(s) didn't match Pod's node affinity/selector"
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
