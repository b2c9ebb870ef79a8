package volumebinding

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	helpers "k8s.io/component-helpers/storage/volume"
)

// yes is the value of annotations whose value says nothing.
const yes = "yes"

// beforeResize is the annotation in which a driver's resizer notes how large the file system is in a volume that has grown already.
const beforeResize = "volume.alpha.kubernetes.io/pre-resize-capacity"

// VolumeFor is a volume that points at a claim. changed: it is another one than v, which is not touched.
func VolumeFor(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) (bound *corev1.PersistentVolume, changed bool, err error) {
	return helpers.GetBindVolumeToClaim(v, claim)
}

// ClaimFor is a claim that points at a volume, and says that the binding is complete. changed: it is another one than claim, which is not touched.
func ClaimFor(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) (bound *corev1.PersistentVolumeClaim, changed bool) {
	bound = claim.DeepCopy()
	if bound.Spec.VolumeName != v.Name {
		bound.Spec.VolumeName = v.Name
		if !metav1.HasAnnotation(bound.ObjectMeta, helpers.AnnBoundByController) {
			metav1.SetMetaDataAnnotation(&bound.ObjectMeta, helpers.AnnBoundByController, yes)
		}
	}
	if !metav1.HasAnnotation(bound.ObjectMeta, helpers.AnnBindCompleted) {
		metav1.SetMetaDataAnnotation(&bound.ObjectMeta, helpers.AnnBindCompleted, yes)
	}
	return bound, !apiequality.Semantic.DeepEqual(bound, claim)
}

// Unbound is a volume that has let go of its claim: it is free, or kept for a claim of the name where a person had it so.
func Unbound(v *corev1.PersistentVolume) *corev1.PersistentVolume {
	v = v.DeepCopy()
	if metav1.HasAnnotation(v.ObjectMeta, helpers.AnnBoundByController) {
		v.Spec.ClaimRef = nil
		delete(v.Annotations, helpers.AnnBoundByController)
	} else if v.Spec.ClaimRef != nil {
		v.Spec.ClaimRef.UID = ""
	}
	return v
}

// StatusOf is a claim with the status of a phase; v is its volume, nil: it has none. changed: it is another one than claim, which is not touched.
//
// The size of a claim that is bound already stays: what is in the volume may not have grown yet with it.
func StatusOf(claim *corev1.PersistentVolumeClaim, phase corev1.PersistentVolumeClaimPhase, v *corev1.PersistentVolume) (now *corev1.PersistentVolumeClaim, changed bool) {
	now = claim.DeepCopy()
	entered, s := now.Status.Phase != phase, &now.Status
	fresh := claim.Status.Phase == corev1.ClaimPending && phase == corev1.ClaimBound
	switch s.Phase = phase; {
	case v == nil:
		s.AccessModes, s.Capacity, s.CurrentVolumeAttributesClassName = nil, nil, nil
	default:
		s.AccessModes = slices.Clone(v.Spec.AccessModes)
		if entered {
			s.Capacity = v.Spec.Capacity.DeepCopy()
			if before, err := resource.ParseQuantity(v.Annotations[beforeResize]); err == nil && s.Capacity != nil {
				s.Capacity[corev1.ResourceStorage] = before
			}
		}
		if fresh { // afterwards the driver's resizer says it
			s.CurrentVolumeAttributesClassName = v.Spec.VolumeAttributesClassName
		}
	}
	return now, !apiequality.Semantic.DeepEqual(now, claim)
}

// Announced is a claim that says whose provisioner is to make its volume.
func Announced(claim *corev1.PersistentVolumeClaim, provisioner string) (now *corev1.PersistentVolumeClaim, changed bool) {
	now = claim.DeepCopy()
	for _, key := range []string{helpers.AnnBetaStorageProvisioner, helpers.AnnStorageProvisioner} {
		metav1.SetMetaDataAnnotation(&now.ObjectMeta, key, provisioner)
	}
	return now, !apiequality.Semantic.DeepEqual(now, claim)
}
