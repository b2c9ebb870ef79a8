package horizontalpodautoscaler

import (
	"encoding/json"
	"fmt"
	"maps"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
)

// The annotations of v1 that carry what it has no fields for. Their names and their contents are those of a Kubernetes API server.
const (
	metricsKey    = "autoscaling.alpha.kubernetes.io/metrics"
	currentKey    = "autoscaling.alpha.kubernetes.io/current-metrics"
	conditionsKey = "autoscaling.alpha.kubernetes.io/conditions"
	behaviorKey   = "autoscaling.alpha.kubernetes.io/behavior"
	downKey       = "autoscaling.alpha.kubernetes.io/scale-down-tolerance"
	upKey         = "autoscaling.alpha.kubernetes.io/scale-up-tolerance"
)

// withoutCarried is a map without the annotations above: the same one where it has none of them.
func withoutCarried(annotations map[string]string) map[string]string {
	rest := annotations
	for _, key := range []string{metricsKey, currentKey, conditionsKey, behaviorKey, downKey, upKey} {
		if _, ok := rest[key]; !ok {
			continue
		}
		if len(rest) == len(annotations) {
			rest = maps.Clone(annotations)
		}
		delete(rest, key)
	}
	return rest
}

// ToV1 returns a in the form of v1. The result shares memory with a.
func ToV1(a *autoscaler) (*autoscalingv1.HorizontalPodAutoscaler, error) {
	out := &autoscalingv1.HorizontalPodAutoscaler{
		ObjectMeta: a.ObjectMeta,
		Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(a.Spec.ScaleTargetRef),
			MinReplicas:    a.Spec.MinReplicas, MaxReplicas: a.Spec.MaxReplicas,
		},
		Status: autoscalingv1.HorizontalPodAutoscalerStatus{
			ObservedGeneration: a.Status.ObservedGeneration, LastScaleTime: a.Status.LastScaleTime,
			CurrentReplicas: a.Status.CurrentReplicas, DesiredReplicas: a.Status.DesiredReplicas,
		},
	}
	carried := map[string]any{}
	var metrics []autoscalingv1.MetricSpec
	for i := range a.Spec.Metrics {
		switch m := &a.Spec.Metrics[i]; {
		case !isUtilizationOfCPU(m):
			metrics = append(metrics, specToV1(m))
		case out.Spec.TargetCPUUtilizationPercentage == nil:
			out.Spec.TargetCPUUtilizationPercentage = m.Resource.Target.AverageUtilization
		}
	}
	if len(metrics) > 0 {
		carried[metricsKey] = metrics
	}
	var current []autoscalingv1.MetricStatus
	for i := range a.Status.CurrentMetrics {
		m := &a.Status.CurrentMetrics[i]
		current = append(current, statusToV1(m))
		if r := m.Resource; m.Type == autoscalingv2.ResourceMetricSourceType && r != nil && r.Name == corev1.ResourceCPU && r.Current.AverageUtilization != nil {
			out.Status.CurrentCPUUtilizationPercentage = r.Current.AverageUtilization
		}
	}
	if len(current) > 0 {
		carried[currentKey] = current
	}
	if len(a.Status.Conditions) > 0 {
		carried[conditionsKey] = conditionsToV1(a.Status.Conditions)
	}
	if a.Spec.Behavior != nil {
		carried[behaviorKey] = carryBehavior(a.Spec.Behavior)
	}
	out.Annotations = withoutCarried(a.Annotations)
	if len(carried) > 0 {
		all := make(map[string]string, len(out.Annotations)+len(carried))
		maps.Copy(all, out.Annotations)
		out.Annotations = all
	}
	for key, value := range carried {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %w", key, err)
		}
		out.Annotations[key] = string(text)
	}
	return out, nil
}

func isUtilizationOfCPU(m *autoscalingv2.MetricSpec) bool {
	return m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil && m.Resource.Name == corev1.ResourceCPU && m.Resource.Target.AverageUtilization != nil
}

// FromV1 returns in in the form of v2. The result shares memory with in. An annotation that cannot be read carries nothing.
func FromV1(in *autoscalingv1.HorizontalPodAutoscaler) *autoscaler {
	out := &autoscaler{
		ObjectMeta: in.ObjectMeta,
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference(in.Spec.ScaleTargetRef),
			MinReplicas:    in.Spec.MinReplicas, MaxReplicas: in.Spec.MaxReplicas,
		},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{
			ObservedGeneration: in.Status.ObservedGeneration, LastScaleTime: in.Status.LastScaleTime,
			CurrentReplicas: in.Status.CurrentReplicas, DesiredReplicas: in.Status.DesiredReplicas,
		},
	}
	var metrics []autoscalingv1.MetricSpec
	if carries(in, metricsKey, &metrics) {
		for i := range metrics {
			out.Spec.Metrics = append(out.Spec.Metrics, specFromV1(&metrics[i]))
		}
	}
	if percent := in.Spec.TargetCPUUtilizationPercentage; percent != nil {
		out.Spec.Metrics = append(out.Spec.Metrics, utilizationOfCPU(*percent))
	}
	if len(out.Spec.Metrics) == 0 { // the default of v2, which can only be told from here
		out.Spec.Metrics = []autoscalingv2.MetricSpec{utilizationOfCPU(defaultUtilization)}
	}
	var behavior carriedBehavior
	if carries(in, behaviorKey, &behavior) && behavior != (carriedBehavior{}) {
		out.Spec.Behavior = behavior.behavior()
	}
	var current []autoscalingv1.MetricStatus
	if carries(in, currentKey, &current) {
		for i := range current {
			out.Status.CurrentMetrics = append(out.Status.CurrentMetrics, statusFromV1(&current[i]))
		}
	} else if percent := in.Status.CurrentCPUUtilizationPercentage; percent != nil {
		out.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricStatus{
			Name: corev1.ResourceCPU, Current: autoscalingv2.MetricValueStatus{AverageUtilization: percent},
		}}}
	}
	var conditions []autoscalingv1.HorizontalPodAutoscalerCondition
	if carries(in, conditionsKey, &conditions) {
		out.Status.Conditions = conditionsFromV1(conditions)
	}
	out.Annotations = withoutCarried(in.Annotations)
	return out
}

// carries reads an annotation.
func carries(in *autoscalingv1.HorizontalPodAutoscaler, key string, into any) bool {
	text, ok := in.Annotations[key]
	return ok && json.Unmarshal([]byte(text), into) == nil
}

func conditionsToV1(all []autoscalingv2.HorizontalPodAutoscalerCondition) []autoscalingv1.HorizontalPodAutoscalerCondition {
	out := make([]autoscalingv1.HorizontalPodAutoscalerCondition, 0, len(all))
	for _, c := range all {
		out = append(out, autoscalingv1.HorizontalPodAutoscalerCondition{
			Type: autoscalingv1.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status, LastTransitionTime: c.LastTransitionTime,
			Reason: c.Reason, Message: c.Message, ObservedGeneration: c.ObservedGeneration,
		})
	}
	return out
}

func conditionsFromV1(all []autoscalingv1.HorizontalPodAutoscalerCondition) []autoscalingv2.HorizontalPodAutoscalerCondition {
	out := make([]autoscalingv2.HorizontalPodAutoscalerCondition, 0, len(all))
	for _, c := range all {
		out = append(out, autoscalingv2.HorizontalPodAutoscalerCondition{
			Type: autoscalingv2.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status, LastTransitionTime: c.LastTransitionTime,
			Reason: c.Reason, Message: c.Message, ObservedGeneration: c.ObservedGeneration,
		})
	}
	return out
}

// addConversions registers the conversion between the two forms, for single objects and for lists.
func addConversions(s *runtime.Scheme) error {
	for _, c := range []struct {
		from, to any
		convert  conversion.ConversionFunc
	}{
		{(*autoscaler)(nil), (*autoscalingv1.HorizontalPodAutoscaler)(nil), func(in, out any, _ conversion.Scope) error {
			a, err := ToV1(in.(*autoscaler))
			if err == nil {
				*out.(*autoscalingv1.HorizontalPodAutoscaler) = *a
			}
			return err
		}},
		{(*autoscalingv1.HorizontalPodAutoscaler)(nil), (*autoscaler)(nil), func(in, out any, _ conversion.Scope) error {
			*out.(*autoscaler) = *FromV1(in.(*autoscalingv1.HorizontalPodAutoscaler))
			return nil
		}},
		{(*autoscalingv2.HorizontalPodAutoscalerList)(nil), (*autoscalingv1.HorizontalPodAutoscalerList)(nil), func(in, out any, _ conversion.Scope) error {
			from, to := in.(*autoscalingv2.HorizontalPodAutoscalerList), out.(*autoscalingv1.HorizontalPodAutoscalerList)
			to.ListMeta, to.Items = from.ListMeta, make([]autoscalingv1.HorizontalPodAutoscaler, len(from.Items))
			for i := range from.Items {
				a, err := ToV1(&from.Items[i])
				if err != nil {
					return err
				}
				to.Items[i] = *a
			}
			return nil
		}},
		{(*autoscalingv1.HorizontalPodAutoscalerList)(nil), (*autoscalingv2.HorizontalPodAutoscalerList)(nil), func(in, out any, _ conversion.Scope) error {
			from, to := in.(*autoscalingv1.HorizontalPodAutoscalerList), out.(*autoscalingv2.HorizontalPodAutoscalerList)
			to.ListMeta, to.Items = from.ListMeta, make([]autoscaler, len(from.Items))
			for i := range from.Items {
				to.Items[i] = *FromV1(&from.Items[i])
			}
			return nil
		}},
	} {
		if err := s.AddConversionFunc(c.from, c.to, c.convert); err != nil {
			return err
		}
	}
	return nil
}
