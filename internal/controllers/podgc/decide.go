package podgc

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/pods"
)

// cause is why a pod is removed; empty: it is not.
type cause string

const (
	orphaned     cause = "its node does not exist"
	unscheduled  cause = "it is deleted and has no node"
	outOfService cause = "it is deleted, and its node is out of service"
)

// decide says whether a pod is removed, or when it is to be looked at again (0: when something changes). node is its node, nil where there is none, which
// has been so since then; patience is for how long nobody believes it.
func decide(pod *corev1.Pod, node *corev1.Node, since, now time.Time, patience time.Duration) (why cause, again time.Duration) {
	deleted := pod.DeletionTimestamp != nil
	switch {
	case pod.Spec.NodeName == "" && deleted:
		return unscheduled, 0
	case pod.Spec.NodeName == "":
		return "", 0
	case node == nil:
		if left := since.Add(patience).Sub(now); left > 0 {
			return "", left
		}
		return orphaned, 0
	case deleted && isOutOfService(node):
		return outOfService, 0
	}
	return "", 0
}

// isOutOfService says of a node that somebody has declared it dead, and that it does not say otherwise.
func isOutOfService(node *corev1.Node) bool {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return false
		}
	}
	for i := range node.Spec.Taints {
		if node.Spec.Taints[i].Key == corev1.TaintNodeOutOfService {
			return true
		}
	}
	return false
}

// mark is the status of a pod that is removed, and whether it is another one than it has.
func mark(pod *corev1.Pod, why cause, now time.Time) (st *corev1.PodStatus, changed bool) {
	st = pod.Status.DeepCopy()
	if !pods.Ended(pod) {
		st.Phase, changed = corev1.PodFailed, true
	}
	if why == orphaned && !pods.IsTrue(st, corev1.DisruptionTarget) {
		pods.SetCondition(st, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: pod.Generation,
			Reason: "DeletionByPodGC", Message: "PodGC: node no longer exists",
		}, now)
		changed = true
	}
	return st, changed
}

// condition tells why a pod was disrupted.
func condition(st *corev1.PodStatus) *corev1.PodCondition {
	return pods.Condition(st, corev1.DisruptionTarget)
}
