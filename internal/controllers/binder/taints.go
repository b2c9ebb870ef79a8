package binder

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/pods"
)

// nodeIsReady stands for the taints node.kubernetes.io/not-ready and unreachable until the node has them.
func nodeIsReady(pod *corev1.Pod, at place) string {
	notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	unreachable := corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}
	switch status := readiness(at.node); {
	case status == corev1.ConditionTrue,
		status == corev1.ConditionUnknown && pods.Tolerates(pod.Spec.Tolerations, &unreachable) != nil,
		status != corev1.ConditionUnknown && pods.Tolerates(pod.Spec.Tolerations, &notReady) != nil:
		return ""
	}
	return "node(s) were not ready"
}

// readiness is the status of a node's condition Ready; empty: it has none.
func readiness(node *corev1.Node) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

func nodeIsSchedulable(pod *corev1.Pod, at place) string {
	cordoned := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	if !at.node.Spec.Unschedulable || pods.Tolerates(pod.Spec.Tolerations, &cordoned) != nil {
		return ""
	}
	return "node(s) were unschedulable"
}

func taintsAreTolerated(pod *corev1.Pod, at place) string {
	for i := range at.node.Spec.Taints {
		taint := &at.node.Spec.Taints[i]
		if taint.Effect == corev1.TaintEffectPreferNoSchedule || pods.Tolerates(pod.Spec.Tolerations, taint) != nil {
			continue
		}
		return fmt.Sprintf("node(s) had untolerated taint {%s: %s}", taint.Key, taint.Value)
	}
	return ""
}
