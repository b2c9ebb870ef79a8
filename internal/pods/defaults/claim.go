package defaults

import corev1 "k8s.io/api/core/v1"

// ClaimSpec sets the defaults of a claim's specification, wherever it stands: in a claim, in a pod that brings it along, in a template.
func ClaimSpec(s *corev1.PersistentVolumeClaimSpec) {
	if s.VolumeMode == nil {
		s.VolumeMode = new(corev1.PersistentVolumeFilesystem)
	}
	RoundUp(s.Resources.Limits)
	RoundUp(s.Resources.Requests)
}
