// Package ephemeralvolume is the controller of generic ephemeral volumes: it makes the claims that pods bring along.
//
// A claim is named after the pod and the volume, and the pod owns it: the garbage collector deletes it with the pod. One of that name that is not the pod's is
// never used, and the pod is told so by an event. A claim that is deleted while its pod is there is made anew.
//
// It is upstream's in what it makes and in its events; so either can take over what the other one has begun.
package ephemeralvolume

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/ephemeral"
)

// Wrong is why a volume of a pod has no claim.
type Wrong struct {
	Volume string
	Err    error
}

func (w Wrong) Error() string { return fmt.Sprintf("ephemeral volume %s: %v", w.Volume, w.Err) }

// Need is a claim that a volume of a pod lacks.
type Need struct {
	Volume string
	Claim  *corev1.PersistentVolumeClaim
}

// Decide says which claims a pod lacks, and which of its volumes have the claim of somebody else in their way. there is a claim of the pod's namespace; nil: it is not.
func Decide(pod *corev1.Pod, there func(name string) *corev1.PersistentVolumeClaim) (needs []Need, wrong []Wrong) {
	if pod.DeletionTimestamp != nil {
		return nil, nil
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil {
			continue
		}
		claim := there(ephemeral.VolumeClaimName(pod, v))
		if claim == nil {
			needs = append(needs, Need{v.Name, claimOf(pod, v)})
		} else if err := ephemeral.VolumeIsForPod(pod, claim); err != nil {
			wrong = append(wrong, Wrong{v.Name, err})
		}
	}
	return needs, wrong
}

func claimOf(pod *corev1.Pod, v *corev1.Volume) *corev1.PersistentVolumeClaim {
	template := v.Ephemeral.VolumeClaimTemplate.DeepCopy()
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: ephemeral.VolumeClaimName(pod, v), Labels: template.Labels, Annotations: template.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))},
		},
		Spec: template.Spec,
	}
}
