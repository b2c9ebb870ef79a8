package pods

import v1 "k8s.io/api/core/v1"

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
	case t.Operator == v1.TolerationOpExists:
		return true
	default: // no operator is Equal; an empty key needs Exists
		return t.Key != "" && t.Value == taint.Value
	}
}
