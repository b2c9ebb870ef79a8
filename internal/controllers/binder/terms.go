package binder

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/pods"
)

// namespaces tells the labels of a namespace; nil: nothing is known of any, as if they had none.
type namespaces func(name string) map[string]string

// means says whether a term of a pod is about another pod. Whatever matchLabelKeys and mismatchLabelKeys ask for, the API server has made a part of the
// selector.
func (n namespaces) means(pod *corev1.Pod, term *corev1.PodAffinityTerm, other *corev1.Pod) bool {
	return n.within(pod.Namespace, term, other.Namespace) && owned.Selects(term.LabelSelector, other.Labels)
}

// within says whether a term of a pod in the namespace own is about pods of a namespace.
func (n namespaces) within(own string, term *corev1.PodAffinityTerm, namespace string) bool {
	if len(term.Namespaces) == 0 && term.NamespaceSelector == nil {
		return namespace == own
	}
	if slices.Contains(term.Namespaces, namespace) {
		return true
	}
	var labels map[string]string
	if n != nil && term.NamespaceSelector != nil {
		labels = n(namespace)
	}
	return owned.Selects(term.NamespaceSelector, labels)
}

// minds says whether a pod without a node may get one, or lose it, by where another pod is.
func (n namespaces) minds(pod, other *corev1.Pod) bool {
	for term := range pods.PodTerms(&pod.Spec) {
		if term.Required && n.means(pod, term.PodAffinityTerm, other) {
			return true
		}
	}
	return slices.ContainsFunc(pod.Spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
		return c.WhenUnsatisfiable == corev1.DoNotSchedule && pod.Namespace == other.Namespace && owned.Selects(c.LabelSelector, other.Labels)
	})
}

// shuns says whether a pod, where it is, keeps another one away.
func (n namespaces) shuns(pod, other *corev1.Pod) bool {
	if !pods.HasPodTerms(&pod.Spec) {
		return false
	}
	for term := range pods.PodTerms(&pod.Spec) {
		if term.Required && term.Anti && n.means(pod, term.PodAffinityTerm, other) {
			return true
		}
	}
	return false
}

// mindsPods says whether a pod without a node may get one, or lose it, by where any other pods are.
func mindsPods(pod *corev1.Pod) bool {
	for term := range pods.PodTerms(&pod.Spec) {
		if term.Required {
			return true
		}
	}
	return slices.ContainsFunc(pod.Spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
		return c.WhenUnsatisfiable == corev1.DoNotSchedule
	})
}

// mindsNamespaces says whether a pod without a node may get one by what namespaces are called.
func mindsNamespaces(pod *corev1.Pod) bool {
	for term := range pods.PodTerms(&pod.Spec) {
		if term.Required && term.NamespaceSelector != nil {
			return true
		}
	}
	return false
}
