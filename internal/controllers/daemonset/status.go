package daemonset

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"monopod.dev/monopod/internal/pods"
)

// status is the set with its status as it is by its pods. Of several on a node the oldest one counts.
func (r *round) status() *appsv1.DaemonSet {
	set := r.Set
	to := appsv1.DaemonSetStatus{
		ObservedGeneration: set.Generation, CollisionCount: set.Status.CollisionCount, Conditions: set.Status.Conditions,
	}
	for _, at := range r.sites {
		switch {
		case !at.run && len(at.pods) > 0:
			to.NumberMisscheduled++
			continue
		case !at.run:
			continue
		}
		to.DesiredNumberScheduled++
		if len(at.pods) == 0 {
			continue
		}
		to.CurrentNumberScheduled++
		pod := at.pods[0]
		if pods.IsTrue(&pod.Status, corev1.PodReady) {
			to.NumberReady++
		}
		if r.available(pod) {
			to.NumberAvailable++
		}
		if r.updated(pod) {
			to.UpdatedNumberScheduled++
		}
	}
	to.NumberUnavailable = to.DesiredNumberScheduled - to.NumberAvailable
	if equality.Semantic.DeepEqual(to, set.Status) {
		return set
	}
	set = set.DeepCopy()
	set.Status = to
	return set
}
