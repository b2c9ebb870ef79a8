package volumebinding

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	helpers "k8s.io/component-helpers/storage/volume"
)

// ForVolume is a decision about a volume. Its parts are done in their order.
type ForVolume struct {
	// Unbind: the volume lets go of the claim: see Unbound.
	Unbind bool
	// Phase is what the volume is in afterwards; empty: as it is. Message goes with it.
	Phase   corev1.PersistentVolumePhase
	Message string
	// Event is for the volume, ClaimEvent for its claim.
	Event, ClaimEvent *Event
	// Claim: the claim is to be decided about.
	Claim bool
}

// Volume decides about a volume. claim is the one that its claimRef names, as it is in the store when this is asked and not as some cache has it, since a volume whose
// claim is missing is given up; nil: there is none.
func Volume(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) ForVolume {
	ref := v.Spec.ClaimRef
	if ref == nil || ref.UID == "" {
		return phaseOf(v, corev1.VolumeAvailable) // kept for a claim, at most
	}
	if claim != nil && claim.UID != ref.UID {
		claim = nil // one of the same name that came later
	}
	switch {
	case claim == nil:
		return release(v)
	case claim.Spec.VolumeName == v.Name:
		return phaseOf(v, corev1.VolumeBound)
	case claim.Spec.VolumeName == "" && helpers.CheckVolumeModeMismatches(&claim.Spec, &v.Spec):
		const reason = "VolumeMismatch"
		return ForVolume{
			Event:      warn(reason, fmt.Sprintf("Cannot bind PersistentVolume to requested PersistentVolumeClaim %q due to incompatible volumeMode.", claim.Name)),
			ClaimEvent: warn(reason, fmt.Sprintf("Cannot bind PersistentVolume %q to requested PersistentVolumeClaim due to incompatible volumeMode.", v.Name)),
		}
	case claim.Spec.VolumeName == "":
		return ForVolume{Claim: true} // its side of the binding is missing
	case metav1.HasAnnotation(v.ObjectMeta, helpers.AnnDynamicallyProvisioned) && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete:
		return release(v) // it was made for the claim, which has another one by now
	}
	return ForVolume{Unbind: true, Phase: corev1.VolumeAvailable}
}

// phaseOf is a phase that the volume is in, or enters.
func phaseOf(v *corev1.PersistentVolume, phase corev1.PersistentVolumePhase) ForVolume {
	if v.Status.Phase == phase {
		return ForVolume{}
	}
	return ForVolume{Phase: phase}
}

// release is about a volume whose claim is gone. That nobody removes it stays to be seen.
func release(v *corev1.PersistentVolume) ForVolume {
	d := ForVolume{}
	if v.Status.Phase != corev1.VolumeReleased && v.Status.Phase != corev1.VolumeFailed {
		d.Phase = corev1.VolumeReleased
	}
	fail := func(reason, message, told string) ForVolume {
		if v.Status.Phase == corev1.VolumeFailed {
			return ForVolume{} // which was told
		}
		return ForVolume{Phase: corev1.VolumeFailed, Message: message, Event: warn(reason, told)}
	}
	switch v.Spec.PersistentVolumeReclaimPolicy {
	case corev1.PersistentVolumeReclaimRetain:
	case corev1.PersistentVolumeReclaimDelete:
		switch {
		case Outside(v.Annotations[helpers.AnnDynamicallyProvisioned]), v.Spec.CSI != nil, metav1.HasAnnotation(v.ObjectMeta, helpers.AnnMigratedTo):
			// Whoever has made it sees that it is released, and removes it.
		default:
			why := fmt.Sprintf("error getting deleter volume plugin for volume %q: no deletable volume plugin matched", v.Name)
			return fail("VolumeFailedDelete", why, why)
		}
	default:
		const unknown = "Volume has unrecognized PersistentVolumeReclaimPolicy"
		return fail("VolumeUnknownReclaimPolicy", unknown, unknown)
	}
	return d
}
