package pods

import v1 "k8s.io/api/core/v1"

// QOS is a pod's quality of service class: the one in its status, which API servers set, else that of its specification.
func QOS(pod *v1.Pod) v1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	return QOSClass(&pod.Spec)
}

// QOSClass derives the quality of service class from requests and limits; only cpu and memory count, and of a pod that has resources of its own
// (spec.resources) only these:
//
//   - Guaranteed: each container has a limit of both, and requests just that;
//   - BestEffort: no container requests or limits either;
//   - Burstable: all others.
//
// A request that is left out is the limit, as by the API's defaults.
func QOSClass(spec *v1.PodSpec) v1.PodQOSClass {
	guaranteed, bestEffort := true, true
	judge := func(r *v1.ResourceRequirements) {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			limit := r.Limits[name]
			request, given := r.Requests[name]
			if !given {
				request = limit
			}
			bestEffort = bestEffort && limit.IsZero() && request.IsZero()
			guaranteed = guaranteed && !limit.IsZero() && limit.Cmp(request) == 0
		}
	}
	if spec.Resources != nil {
		judge(spec.Resources)
	} else {
		for role, c := range Containers(spec) {
			if role != Ephemeral { // they have no resources of their own
				judge(&c.Resources)
			}
		}
	}
	switch {
	case bestEffort:
		return v1.PodQOSBestEffort
	case guaranteed:
		return v1.PodQOSGuaranteed
	default:
		return v1.PodQOSBurstable
	}
}
