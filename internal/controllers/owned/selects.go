package owned

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Selects says whether a selector is about what has these labels: an empty one is about everything, one that is not there about nothing. Whoever
// is asked is one of many, and to make a labels.Selector of each of theirs, which checks every key and value, would take most of the time.
func Selects(selector *metav1.LabelSelector, labels map[string]string) bool {
	if selector == nil {
		return false
	}
	for key, value := range selector.MatchLabels {
		if has, ok := labels[key]; !ok || has != value {
			return false
		}
	}
	for i := range selector.MatchExpressions {
		if !meets(&selector.MatchExpressions[i], labels) {
			return false
		}
	}
	return true
}

func meets(e *metav1.LabelSelectorRequirement, labels map[string]string) bool {
	value, has := labels[e.Key]
	switch e.Operator {
	case metav1.LabelSelectorOpIn:
		return has && slices.Contains(e.Values, value)
	case metav1.LabelSelectorOpNotIn:
		return !has || !slices.Contains(e.Values, value)
	case metav1.LabelSelectorOpExists:
		return has
	case metav1.LabelSelectorOpDoesNotExist:
		return !has
	default: // what cannot be read is about nothing
		return false
	}
}
