package allocated

import (
	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"monopod.dev/monopod/internal/pods"
)

// Allocation is what a pod has of its node, or asks for. It is read from the pod whenever it is asked. Sums are the caller's; what else it hands out belongs to
// the pod, and is not to be changed.
type Allocation struct{ pod *v1.Pod }

// Of is what a pod has by its specification: what it asks for, and of a pod that its agent has in hand what it was given (Given.In).
func Of(pod *v1.Pod) Allocation { return Allocation{pod} }

// Held is what of its node nobody else can have beside a pod that has its place there, as Requests has it. It is for those who see the pod from outside: while
// the agent has still to do what was changed of the specification (KEP-1287), that is the more of what is asked for and of what the status says.
func Held(pod *v1.Pod) v1.ResourceList {
	return resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true})
}

// Requests is the sum of what a node must have for the pod: what its containers request, and the overhead of its sandbox. Of each resource the containers request
// what the app containers and the sidecars do together, or an init container with the sidecars started before it, whichever is more (KEP-753); where
// the pod has resources of its own, these count (KEP-2837).
func (a Allocation) Requests() v1.ResourceList {
	return resourcehelper.PodRequests(a.pod, resourcehelper.PodResourcesOptions{})
}

// Whole is what a pod's cgroup holds: what the pod requests and is limited to, the overhead of its sandbox included. Cpu and memory are limited only where
// each container is, or the pod as a whole: a container without a limit may use what there is.
func (a Allocation) Whole() v1.ResourceRequirements {
	r := v1.ResourceRequirements{Requests: a.Requests(), Limits: resourcehelper.PodLimits(a.pod, resourcehelper.PodResourcesOptions{})}
	a.onlyLimited(r.Limits)
	return r
}

// WithoutSandbox is Whole without the overhead of the sandbox.
func (a Allocation) WithoutSandbox() v1.ResourceRequirements {
	r := a.Stated()
	a.onlyLimited(r.Limits)
	return r
}

// Stated are the requests and limits that the containers of a pod and the pod itself state, without the overhead of its sandbox: the limits also of what some
// container is not limited to.
func (a Allocation) Stated() v1.ResourceRequirements {
	options := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
	return v1.ResourceRequirements{Requests: resourcehelper.PodRequests(a.pod, options), Limits: resourcehelper.PodLimits(a.pod, options)}
}

// ContainerRequests are what the containers of a pod request together, whatever the pod as a whole does.
func (a Allocation) ContainerRequests() v1.ResourceList {
	return resourcehelper.AggregateContainerRequests(a.pod, resourcehelper.PodResourcesOptions{})
}

// ContainerLimits are what they are limited to together, as far as they are.
func (a Allocation) ContainerLimits() v1.ResourceList {
	return resourcehelper.AggregateContainerLimits(a.pod, resourcehelper.PodResourcesOptions{})
}

// Overhead is that of the pod's sandbox.
func (a Allocation) Overhead() v1.ResourceList { return a.pod.Spec.Overhead }

// Own are the resources that the pod has as a whole, which its containers share (KEP-2837); nil: it has none.
func (a Allocation) Own() *v1.ResourceRequirements { return a.pod.Spec.Resources }

// RequestsAsWhole says that the pod requests something as a whole.
func (a Allocation) RequestsAsWhole() bool { return resourcehelper.IsPodLevelRequestsSet(a.pod) }

// Container is what a container of the pod has by itself; nothing where the pod has none of that name, and for ephemeral ones, which have nothing.
func (a Allocation) Container(name string) v1.ResourceRequirements {
	if role, c := pods.ContainerNamed(&a.pod.Spec, name); c != nil && role != pods.Ephemeral {
		return c.Resources
	}
	return v1.ResourceRequirements{}
}

// Limits are what a container of the pod is limited to: by itself, and for what it does not limit with the pod, which all containers share.
func (a Allocation) Limits(name string) v1.ResourceList {
	own := a.Container(name).Limits
	if a.Own() == nil {
		return own
	}
	limits := own.DeepCopy()
	for name, q := range a.Own().Limits {
		if mine, ok := limits[name]; ok && !mine.IsZero() {
			continue
		}
		if limits == nil {
			limits = v1.ResourceList{}
		}
		limits[name] = q
	}
	return limits
}

// Bounds is what a container without a limit of its own is told to be limited to: what the pod as a whole is, else what the node has for pods.
func (a Allocation) Bounds(allocatable v1.ResourceList) v1.ResourceList {
	own := a.Own()
	if own == nil || len(own.Limits) == 0 {
		return allocatable
	}
	all := allocatable.DeepCopy()
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if limit := own.Limits[name]; !limit.IsZero() && all != nil {
			all[name] = limit
		}
	}
	return all
}

// onlyLimited drops from the sum of limits what some container is not limited to.
func (a Allocation) onlyLimited(limits v1.ResourceList) {
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if !a.limited(name) {
			delete(limits, name)
		}
	}
}

func (a Allocation) limited(name v1.ResourceName) bool {
	if own := a.Own(); own != nil {
		if q := own.Limits[name]; !q.IsZero() {
			return true
		}
	}
	for role, c := range pods.Containers(&a.pod.Spec) {
		if q := c.Resources.Limits[name]; role != pods.Ephemeral && q.IsZero() {
			return false
		}
	}
	return true
}

// OfPods says of a resource that a pod as a whole can have it (spec.resources, KEP-2837).
func OfPods(name v1.ResourceName) bool { return resourcehelper.IsSupportedPodLevelResource(name) }
