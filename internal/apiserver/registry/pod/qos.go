package pod

import (
	corev1 "k8s.io/api/core/v1"
)

// qosClass derives the quality of service class from what the containers request and are limited to (only cpu and
// memory count):
//
//   - Guaranteed: every container has a limit for both, and requests just that;
//   - BestEffort: no container requests or limits either;
//   - Burstable: all others.
func qosClass(spec *corev1.PodSpec) corev1.PodQOSClass {
	guaranteed, bestEffort := true, true
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			r := &containers[i].Resources
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				limit, request := r.Limits[name], r.Requests[name]
				if !limit.IsZero() || !request.IsZero() {
					bestEffort = false
				}
				// A request that is left out is defaulted to the limit before this is asked.
				if limit.IsZero() || limit.Cmp(request) != 0 {
					guaranteed = false
				}
			}
		}
	}
	switch {
	case bestEffort:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	default:
		return corev1.PodQOSBurstable
	}
}
