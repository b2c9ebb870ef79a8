package defaults

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod.dev/monopod/internal/pods"
	"monopod.dev/monopod/internal/pods/allocated"
)

// setPodResources sets what a pod has as a whole, where it says some of it, from what it says and from its containers (KEP-2837): limits of huge pages are
// those of the containers together; a request that is left out is that of the containers, and where none of them requests the resource, the limit.
func setPodResources(pod *corev1.Pod) {
	r := pod.Spec.Resources
	if r == nil || len(r.Limits)+len(r.Requests) == 0 {
		return
	}
	for name, sum := range allocated.Of(pod).ContainerLimits() {
		if _, requested := r.Requests[name]; requested || !pods.IsHugepages(name) {
			continue
		}
		setQuantity(&r.Limits, name, sum)
	}
	if len(r.Limits) == 0 {
		return
	}
	for name, sum := range allocated.Of(pod).ContainerRequests() {
		if allocated.OfPods(name) && pods.CanBeOvercommitted(name) {
			setQuantity(&r.Requests, name, sum)
		}
	}
	for name, limit := range r.Limits {
		if allocated.OfPods(name) {
			setQuantity(&r.Requests, name, limit)
		}
	}
}

// setQuantity sets an amount where there is none.
func setQuantity(list *corev1.ResourceList, name corev1.ResourceName, q resource.Quantity) {
	if _, ok := (*list)[name]; ok {
		return
	}
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = q.DeepCopy()
}
