package horizontalpodautoscaler

import (
	"fmt"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"

	"monopod.dev/monopod/internal/apiserver/resource"
)

// shownTargets is how many of the metrics the table shows.
const shownTargets = 2

func columns() []resource.Column[*autoscaler] {
	spec := autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc()
	return []resource.Column[*autoscaler]{
		{Name: "Name"},
		{Name: "Reference", Doc: spec["scaleTargetRef"], Value: func(a *autoscaler) any { return a.Spec.ScaleTargetRef.Kind + "/" + a.Spec.ScaleTargetRef.Name }},
		{Name: "Targets", Doc: spec["metrics"], Value: func(a *autoscaler) any { return targets(a) }},
		{Name: "MinPods", Doc: spec["minReplicas"], Value: func(a *autoscaler) any {
			if a.Spec.MinReplicas == nil {
				return resource.Unset
			}
			return fmt.Sprint(*a.Spec.MinReplicas)
		}},
		{Name: "MaxPods", Doc: spec["maxReplicas"], Value: func(a *autoscaler) any { return int64(a.Spec.MaxReplicas) }},
		{Name: "Replicas", Doc: autoscalingv2.HorizontalPodAutoscalerStatus{}.SwaggerDoc()["currentReplicas"], Value: func(a *autoscaler) any { return int64(a.Status.CurrentReplicas) }},
		{Name: "Age"},
	}
}

// targets are the metrics with their values and their targets.
func targets(a *autoscaler) string {
	if len(a.Spec.Metrics) == 0 {
		return resource.None
	}
	var list []string
	for i := range a.Spec.Metrics {
		status := &autoscalingv2.MetricStatus{}
		if i < len(a.Status.CurrentMetrics) {
			status = &a.Status.CurrentMetrics[i]
		}
		list = append(list, target(&a.Spec.Metrics[i], status))
	}
	more := len(list) - shownTargets
	if more <= 0 {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s + %d more...", strings.Join(list[:shownTargets], ", "), more)
}

// target is one of them. The status is of the same metric, or empty.
func target(m *autoscalingv2.MetricSpec, status *autoscalingv2.MetricStatus) string {
	var now autoscalingv2.MetricValueStatus // of which nothing is known
	switch {
	case m.Type == autoscalingv2.ExternalMetricSourceType && m.External != nil:
		if status.External != nil {
			now = status.External.Current
		}
		return ofValue(&m.External.Target, &now)
	case m.Type == autoscalingv2.ObjectMetricSourceType && m.Object != nil:
		if status.Object != nil {
			now = status.Object.Current
		}
		return ofValue(&m.Object.Target, &now)
	case m.Type == autoscalingv2.PodsMetricSourceType && m.Pods != nil:
		if status.Pods != nil {
			now = status.Pods.Current
		}
		return of(now.AverageValue, m.Pods.Target.AverageValue)
	case m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil:
		if status.Resource != nil {
			now = status.Resource.Current
		}
		return ofResource(m.Resource.Name, &m.Resource.Target, &now)
	case m.Type == autoscalingv2.ContainerResourceMetricSourceType && m.ContainerResource != nil:
		if status.ContainerResource != nil {
			now = status.ContainerResource.Current
		}
		return ofResource(m.ContainerResource.Name, &m.ContainerResource.Target, &now)
	}
	return "<unknown type>"
}

func ofValue(t *autoscalingv2.MetricTarget, now *autoscalingv2.MetricValueStatus) string {
	if t.AverageValue != nil {
		return of(now.AverageValue, t.AverageValue) + " (avg)"
	}
	return of(now.Value, t.Value)
}

func ofResource(name corev1.ResourceName, t *autoscalingv2.MetricTarget, now *autoscalingv2.MetricValueStatus) string {
	if t.AverageValue != nil {
		return fmt.Sprintf("%s: %s", name, of(now.AverageValue, t.AverageValue))
	}
	percent := func(n *int32, none string) string {
		if n == nil {
			return none
		}
		return fmt.Sprintf("%d%%", *n)
	}
	return fmt.Sprintf("%s: %s/%s", name, percent(now.AverageUtilization, resource.Unknown), percent(t.AverageUtilization, "<auto>"))
}

func of(now, want *quantity.Quantity) string {
	is := resource.Unknown
	if now != nil {
		is = now.String()
	}
	return is + "/" + want.String()
}
