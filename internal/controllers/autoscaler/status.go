package autoscaler

import (
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// condition is one of an autoscaler, without the time.
type condition struct {
	of              autoscalingv2.HorizontalPodAutoscalerConditionType
	status          corev1.ConditionStatus
	reason, message string
}

// set gives an autoscaler a condition. Its time stays as long as its status does.
func set(a *autoscalingv2.HorizontalPodAutoscaler, c condition, now time.Time) {
	to := autoscalingv2.HorizontalPodAutoscalerCondition{Type: c.of, Status: c.status, Reason: c.reason, Message: c.message, LastTransitionTime: metav1.NewTime(now)}
	for i, old := range a.Status.Conditions {
		if old.Type != c.of {
			continue
		}
		if old.Status == c.status {
			to.LastTransitionTime = old.LastTransitionTime
		}
		a.Status.Conditions[i] = to
		return
	}
	a.Status.Conditions = append(a.Status.Conditions, to)
}

// status is that of an autoscaler with other numbers.
func status(a *autoscalingv2.HorizontalPodAutoscaler, current, desired int32, metrics []autoscalingv2.MetricStatus) autoscalingv2.HorizontalPodAutoscalerStatus {
	st := autoscalingv2.HorizontalPodAutoscalerStatus{
		CurrentReplicas: current, DesiredReplicas: desired, CurrentMetrics: metrics, LastScaleTime: a.Status.LastScaleTime, Conditions: a.Status.Conditions,
	}
	if a.Generation > 0 {
		st.ObservedGeneration = &a.Generation
	}
	return st
}
