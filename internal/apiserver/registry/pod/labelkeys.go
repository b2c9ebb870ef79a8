package pod

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/pods"
)

// applyLabelKeys makes what a new pod asks for by the keys of its own labels (matchLabelKeys, mismatchLabelKeys: KEP-3633, KEP-3243) a part of the selectors
// beside them, with the values that it has now. A key that it has no label of asks for nothing.
func applyLabelKeys(pod *corev1.Pod) {
	for term := range pods.PodTerms(&pod.Spec) {
		applyKeys(term.LabelSelector, term.MatchLabelKeys, metav1.LabelSelectorOpIn, pod.Labels)
		applyKeys(term.LabelSelector, term.MismatchLabelKeys, metav1.LabelSelectorOpNotIn, pod.Labels)
	}
	for i := range pod.Spec.TopologySpreadConstraints {
		c := &pod.Spec.TopologySpreadConstraints[i]
		applyKeys(c.LabelSelector, c.MatchLabelKeys, metav1.LabelSelectorOpIn, pod.Labels)
	}
}

// applyKeys leaves out a selector that is not there: it selects nothing, and keys beside it are an error, which validation tells.
func applyKeys(selector *metav1.LabelSelector, keys []string, operator metav1.LabelSelectorOperator, labels map[string]string) {
	if selector == nil {
		return
	}
	for _, key := range keys {
		if value, has := labels[key]; has {
			selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}})
		}
	}
}
