package volumebinding

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/storage/ephemeral"
	helpers "k8s.io/component-helpers/storage/volume"
)

// The indices, so that nobody walks all volumes, claims or pods.
const (
	// ofClaim is of volumes, by the claim that they point at.
	ofClaim = "monopod.dev/volume-of-claim"
	// free is of volumes that point at no claim, by their class.
	free = "monopod.dev/free-volume"
	// ofVolume is of claims, by the volume that they name.
	ofVolume = "monopod.dev/claim-of-volume"
	// unbound is of claims that would have any volume, by their class.
	unbound = "monopod.dev/unbound-claim"
	// waiting is of pods without a node, by the claims that they use.
	waiting = "monopod.dev/waiting-for-claim"
)

// pointsAt is the claim that a volume points at.
func pointsAt(v *corev1.PersistentVolume) (claim cache.ObjectName, ok bool) {
	if ref := v.Spec.ClaimRef; ref != nil {
		return cache.NewObjectName(ref.Namespace, ref.Name), true
	}
	return cache.ObjectName{}, false
}

func volumeIndexers() cache.Indexers {
	return cache.Indexers{
		ofClaim: func(obj any) ([]string, error) {
			if v, ok := obj.(*corev1.PersistentVolume); ok {
				if claim, ok := pointsAt(v); ok {
					return []string{claim.String()}, nil
				}
			}
			return nil, nil
		},
		free: func(obj any) ([]string, error) {
			if v, ok := obj.(*corev1.PersistentVolume); ok && v.Spec.ClaimRef == nil {
				return []string{helpers.GetPersistentVolumeClass(v)}, nil
			}
			return nil, nil
		},
	}
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

func podIndexers() cache.Indexers {
	return cache.Indexers{waiting: func(obj any) (keys []string, err error) {
		pod, ok := obj.(*corev1.Pod)
		if !ok || pod.Spec.NodeName != "" {
			return nil, nil
		}
		for i := range pod.Spec.Volumes {
			switch v := &pod.Spec.Volumes[i]; {
			case v.PersistentVolumeClaim != nil:
				keys = append(keys, cache.NewObjectName(pod.Namespace, v.PersistentVolumeClaim.ClaimName).String())
			case v.Ephemeral != nil:
				keys = append(keys, cache.NewObjectName(pod.Namespace, ephemeral.VolumeClaimName(pod, v)).String())
			}
		}
		return keys, nil
	}}
}
