package admission

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
)

// tolerationSeconds is how long a pod that says nothing of it stays on a node that is not ready or of which nothing is known.
const tolerationSeconds = 300

// DefaultTolerationSeconds gives pods the tolerations of the taints not-ready and unreachable with the effect NoExecute, for five minutes, where they say
// nothing of these taints themselves. (Upstream's plugin of that name.)
type DefaultTolerationSeconds struct{}

var _ admission.MutationInterface = DefaultTolerationSeconds{}

// Handles implements admission.Interface.
func (DefaultTolerationSeconds) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Update
}

// Admit implements admission.MutationInterface.
func (DefaultTolerationSeconds) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || a.GetResource().GroupResource() != corev1.Resource("pods") || a.GetSubresource() != "" {
		return nil
	}
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		says := slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
			return (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
		})
		if says {
			continue
		}
		seconds := int64(tolerationSeconds)
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds,
		})
	}
	return nil
}
