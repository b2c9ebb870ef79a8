package tainteviction

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/pods"
)

// evicts says that a node has a taint for whose sake pods go.
func evicts(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute })
}

// tolerance is how long a pod may stay with the taints of its node; not bounded: for ever.
func tolerance(tolerations []corev1.Toleration, taints []corev1.Taint) (stays time.Duration, bounded bool) {
	for i := range taints {
		if taints[i].Effect != corev1.TaintEffectNoExecute {
			continue
		}
		by := pods.Tolerates(tolerations, &taints[i])
		if by == nil {
			return 0, true
		}
		if by.TolerationSeconds == nil {
			continue
		}
		if d := pods.Seconds(*by.TolerationSeconds); !bounded || d < stays {
			stays, bounded = d, true
		}
	}
	return stays, bounded
}
