package pods

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Requests are what a node must have for a pod: what its containers request, and the overhead of its sandbox. Of each resource the containers request
// what the app containers and the sidecars do together, or an init container with the sidecars started before it, whichever is more (KEP-753); where
// the pod has resources of its own, these count (KEP-2837). The sum is that of k8s.io/component-helpers, as the scheduler and the kubelet have it.
func Requests(pod *v1.Pod) v1.ResourceList {
	return resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
}

// ContainerRequests are what the containers of a pod request together, whatever the pod as a whole does.
func ContainerRequests(pod *v1.Pod) v1.ResourceList {
	return resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
}

// ContainerLimits are what they are limited to together, as far as they are.
func ContainerLimits(pod *v1.Pod) v1.ResourceList {
	return resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{})
}

// Whole is what a pod's cgroup holds: what the pod requests and is limited to, the overhead of its sandbox included. Cpu and memory are limited only where
// each container is, or the pod as a whole.
func Whole(pod *v1.Pod) v1.ResourceRequirements {
	r := v1.ResourceRequirements{Requests: Requests(pod), Limits: resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})}
	onlyLimited(&pod.Spec, r.Limits)
	return r
}

// Resources are what the containers of a pod request and are limited to together, without the overhead of its sandbox. Cpu and memory are
// limited only where each container is, or the pod as a whole: one without a limit may use what there is.
func Resources(pod *v1.Pod) v1.ResourceRequirements {
	whole := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
	r := v1.ResourceRequirements{Requests: resourcehelper.PodRequests(pod, whole), Limits: resourcehelper.PodLimits(pod, whole)}
	onlyLimited(&pod.Spec, r.Limits)
	return r
}

// onlyLimited drops from the sum of limits what some container is not limited to.
func onlyLimited(spec *v1.PodSpec, limits v1.ResourceList) {
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if !limited(spec, name) {
			delete(limits, name)
		}
	}
}

func limited(spec *v1.PodSpec, name v1.ResourceName) bool {
	if spec.Resources != nil {
		if q := spec.Resources.Limits[name]; !q.IsZero() {
			return true
		}
	}
	for role, c := range Containers(spec) {
		if q := c.Resources.Limits[name]; role != Ephemeral && q.IsZero() {
			return false
		}
	}
	return true
}

// Bounds is what a container without a limit of its own is limited to: what the pod as a whole is, else what the node has. The downward API tells it.
func Bounds(pod *v1.Pod, allocatable v1.ResourceList) v1.ResourceList {
	if pod.Spec.Resources == nil || len(pod.Spec.Resources.Limits) == 0 {
		return allocatable
	}
	all := allocatable.DeepCopy()
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if limit := pod.Spec.Resources.Limits[name]; !limit.IsZero() && all != nil {
			all[name] = limit
		}
	}
	return all
}

// IsHugepages says of a resource that it is huge pages of some size.
func IsHugepages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// CanBeOvercommitted says of a resource that more of it can be promised than there is, so that a limit may be more than what is requested.
func CanBeOvercommitted(name v1.ResourceName) bool { return !IsExtended(name) && !IsHugepages(name) }

// OfPods says of a resource that a pod as a whole can have it (spec.resources, KEP-2837).
func OfPods(name v1.ResourceName) bool { return resourcehelper.IsSupportedPodLevelResource(name) }

// IsExtended says of a resource that somebody outside Kubernetes defines it, such as a device: its name has a domain, which is not Kubernetes' own.
// Quotas write "requests." before names.
func IsExtended(name v1.ResourceName) bool {
	domain, _, qualified := strings.Cut(string(name), "/")
	return qualified && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") && !strings.HasPrefix(domain, v1.DefaultResourceRequestsPrefix)
}
