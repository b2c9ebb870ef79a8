package volumebinding

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	helpers "k8s.io/component-helpers/storage/volume"
)

// The indices of claims, so that nobody walks all of them; package storageindex has those of volumes and pods.
const (
	// ofVolume is of claims, by the volume that they name.
	ofVolume = "monopod.dev/claim-of-volume"
	// unbound is of claims that would have any volume, by their class.
	unbound = "monopod.dev/unbound-claim"
)

// pointsAt is the claim that a volume points at.
func pointsAt(v *corev1.PersistentVolume) (claim cache.ObjectName, ok bool) {
	if ref := v.Spec.ClaimRef; ref != nil {
		return cache.NewObjectName(ref.Namespace, ref.Name), true
	}
	return cache.ObjectName{}, false
}

func claimIndexers() cache.Indexers {
	return cache.Indexers{
		ofVolume: func(obj any) ([]string, error) {
			if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok && claim.Spec.VolumeName != "" {
				return []string{claim.Spec.VolumeName}, nil
			}
			return nil, nil
		},
		unbound: func(obj any) ([]string, error) {
			if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok && claim.Spec.VolumeName == "" && !metav1.HasAnnotation(claim.ObjectMeta, helpers.AnnBindCompleted) {
				return []string{helpers.GetPersistentVolumeClaimClass(claim)}, nil
			}
			return nil, nil
		},
	}
}
