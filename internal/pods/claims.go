package pods

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/ephemeral"
)

// ClaimName names a claim that a pod has. Own: the pod brings it along.
type ClaimName struct {
	types.NamespacedName
	Own bool
}

// Claims are those of a pod, each once, in the order of the pod's volumes. They never change.
func Claims(pod *corev1.Pod) (all []ClaimName) {
	for i := range pod.Spec.Volumes {
		name := ClaimName{NamespacedName: types.NamespacedName{Namespace: pod.Namespace}}
		switch v := &pod.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			name.Name = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			name.Name, name.Own = ephemeral.VolumeClaimName(pod, v), true
		default:
			continue
		}
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}
