package statefulset

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"monopod.dev/monopod/internal/pods"
)

// status is the set with its status as it is by its pods.
func (r *round) status() *appsv1.StatefulSet {
	set := r.Set
	to := appsv1.StatefulSetStatus{
		ObservedGeneration: set.Generation, CurrentRevision: r.current, UpdateRevision: r.update, CollisionCount: set.Status.CollisionCount,
		Conditions: set.Status.Conditions,
	}
	if to.CollisionCount == nil {
		to.CollisionCount = new(int32)
	}
	for _, pod := range r.Pods {
		if _, ok := ordinal(set, pod); ok {
			r.count(pod, &to)
		}
	}
	to.CurrentReplicas -= r.leaves
	if n := *set.Spec.Replicas; set.DeletionTimestamp == nil && set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType &&
		to.Replicas == n && to.ReadyReplicas == n && to.UpdatedReplicas == n {
		to.CurrentRevision, to.CurrentReplicas = to.UpdateRevision, to.UpdatedReplicas // the update is complete
	}
	if equality.Semantic.DeepEqual(to, set.Status) {
		return set
	}
	set = set.DeepCopy()
	set.Status = to
	return set
}

func (r *round) count(pod *corev1.Pod, to *appsv1.StatefulSetStatus) {
	to.Replicas++
	if runs(pod) {
		to.ReadyReplicas++
		left := pods.UntilAvailable(&pod.Status, r.Set.Spec.MinReadySeconds, r.Now)
		if left == 0 {
			to.AvailableReplicas++
		} else if r.plan.Again == 0 || left < r.plan.Again {
			r.plan.Again = left
		}
	}
	if pod.DeletionTimestamp == nil {
		if revision(pod) == r.current {
			to.CurrentReplicas++
		}
		if revision(pod) == r.update {
			to.UpdatedReplicas++
		}
	}
}
