package pods

import (
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// Tolerates is the first of a pod's tolerations that a taint is matched by, in its place; nil: the pod does not tolerate it.
func Tolerates(tolerations []v1.Toleration, taint *v1.Taint) *v1.Toleration {
	for i := range tolerations {
		if t := &tolerations[i]; matches(t, taint) {
			return t
		}
	}
	return nil
}

func matches(t *v1.Toleration, taint *v1.Taint) bool {
	switch {
	case t.Effect != "" && t.Effect != taint.Effect:
		return false
	case t.Key != "" && t.Key != taint.Key:
		return false
	}
	switch t.Operator {
	case v1.TolerationOpExists:
		return true
	case v1.TolerationOpLt, v1.TolerationOpGt:
		return compares(t, taint)
	default: // no operator is Equal; an empty key needs Exists
		return t.Key != "" && t.Value == taint.Value
	}
}

// compares says that the value of a taint is less, or greater, than that of the toleration (KEP-5471). What is no number is neither.
func compares(t *v1.Toleration, taint *v1.Taint) bool {
	bound, err := strconv.ParseInt(t.Value, 10, 64)
	if err != nil {
		return false
	}
	value, err := strconv.ParseInt(taint.Value, 10, 64)
	if err != nil {
		return false
	}
	if t.Operator == v1.TolerationOpLt {
		return value < bound
	}
	return value > bound
}
