package allocated

import (
	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"monopod.dev/monopod/internal/pods"
)

// Given is what a pod was given when it was admitted: that of its containers, and its own. It keeps nothing else of the pod, whose objects come and go.
type Given struct {
	containers []given
	own        *v1.ResourceRequirements
}

type given struct {
	name string
	has  v1.ResourceRequirements
}

// Given is what somebody who gives the pod this is to keep.
func (a Allocation) Given() Given {
	g := Given{own: a.Own()}
	for role, c := range pods.Containers(&a.pod.Spec) {
		if role != pods.Ephemeral {
			g.containers = append(g.containers, given{c.Name, c.Resources})
		}
	}
	return g
}

// In is the pod with what it was given in the place of what it asks for: the pod itself where these are the same. What is made of that one (its cgroup, its
// containers, its status) is made of what it has. The caller's pod is not changed.
func (g Given) In(pod *v1.Pod) *v1.Pod {
	if g.isAskedBy(pod) {
		return pod
	}
	pod = pod.DeepCopy()
	pod.Spec.Resources = g.own.DeepCopy()
	for _, of := range g.containers {
		if _, c := pods.ContainerNamed(&pod.Spec, of.name); c != nil {
			c.Resources = *of.has.DeepCopy()
		}
	}
	return pod
}

// isAskedBy says that a pod asks for just that.
func (g Given) isAskedBy(pod *v1.Pod) bool {
	if !apiequality.Semantic.DeepEqual(g.own, pod.Spec.Resources) {
		return false
	}
	for _, of := range g.containers {
		if _, c := pods.ContainerNamed(&pod.Spec, of.name); c != nil && !apiequality.Semantic.DeepEqual(of.has, c.Resources) {
			return false
		}
	}
	return true
}
