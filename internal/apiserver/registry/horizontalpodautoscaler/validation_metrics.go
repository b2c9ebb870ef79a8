package horizontalpodautoscaler

import (
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	podvalidation "monopod.dev/monopod/internal/pods/validation"
)

func validateMetrics(spec *autoscalingv2.HorizontalPodAutoscalerSpec, versions groupRule, path *field.Path) (errs field.ErrorList) {
	outside := false // there is a metric that is there without pods
	for i := range spec.Metrics {
		m := &spec.Metrics[i]
		errs = append(errs, validateMetric(m, versions, path.Index(i))...)
		outside = outside || m.Type == autoscalingv2.ObjectMetricSourceType || m.Type == autoscalingv2.ExternalMetricSourceType
	}
	if spec.MinReplicas != nil && *spec.MinReplicas == 0 && !outside {
		errs = append(errs, field.Forbidden(path, "must specify at least one Object or External metric to support scaling to zero replicas"))
	}
	return errs
}

// validateMetric: a metric has the one source that its type names.
func validateMetric(m *autoscalingv2.MetricSpec, versions groupRule, path *field.Path) (errs field.ErrorList) {
	sources := []struct {
		of    autoscalingv2.MetricSourceType
		name  string
		given bool
		check func(*field.Path) field.ErrorList
	}{
		{autoscalingv2.ContainerResourceMetricSourceType, "containerResource", m.ContainerResource != nil,
			func(at *field.Path) field.ErrorList { return validateContainerResource(m.ContainerResource, at) }},
		{autoscalingv2.ExternalMetricSourceType, "external", m.External != nil, func(at *field.Path) field.ErrorList { return validateExternal(m.External, at) }},
		{autoscalingv2.ObjectMetricSourceType, "object", m.Object != nil, func(at *field.Path) field.ErrorList { return validateObject(m.Object, versions, at) }},
		{autoscalingv2.PodsMetricSourceType, "pods", m.Pods != nil, func(at *field.Path) field.ErrorList { return validatePods(m.Pods, at) }},
		{autoscalingv2.ResourceMetricSourceType, "resource", m.Resource != nil, func(at *field.Path) field.ErrorList { return validateResource(m.Resource, at) }},
	}
	var types []autoscalingv2.MetricSourceType
	for _, s := range sources {
		types = append(types, s.of)
		switch at := path.Child(s.name); {
		case s.of == m.Type && !s.given:
			errs = append(errs, field.Required(at, "must populate information for the given metric source"))
		case s.of == m.Type:
			errs = append(errs, s.check(at)...)
		case s.given:
			errs = append(errs, field.Forbidden(at, "must populate the given metric source only"))
		}
	}
	switch {
	case m.Type == "":
		errs = append(errs, field.Required(path.Child("type"), "must specify a metric source type"))
	case !slices.Contains(types, m.Type):
		errs = append(errs, field.NotSupported(path.Child("type"), m.Type, types))
	}
	return errs
}

const missingMetric = "must specify a metric name"

func validateObject(s *autoscalingv2.ObjectMetricSource, versions groupRule, path *field.Path) field.ErrorList {
	errs := validateReference(&s.DescribedObject, versions, path.Child("describedObject"))
	errs = append(errs, validatePathSegment(s.Metric.Name, missingMetric, path.Child("metric", "name"))...)
	errs = append(errs, validateTarget(&s.Target, path.Child("target"))...)
	if s.Target.Value == nil && s.Target.AverageValue == nil {
		errs = append(errs, field.Required(path.Child("target", "averageValue"), "must set either a target value or averageValue"))
	}
	return errs
}

func validateExternal(s *autoscalingv2.ExternalMetricSource, path *field.Path) field.ErrorList {
	errs := validatePathSegment(s.Metric.Name, missingMetric, path.Child("metric", "name"))
	errs = append(errs, validateTarget(&s.Target, path.Child("target"))...)
	switch value, average := s.Target.Value != nil, s.Target.AverageValue != nil; {
	case !value && !average:
		errs = append(errs, field.Required(path.Child("target", "averageValue"), "must set either a target value for metric or a per-pod target"))
	case value && average:
		errs = append(errs, field.Forbidden(path.Child("target", "value"), "may not set both a target value for metric and a per-pod target"))
	}
	return errs
}

func validatePods(s *autoscalingv2.PodsMetricSource, path *field.Path) field.ErrorList {
	errs := validatePathSegment(s.Metric.Name, missingMetric, path.Child("metric", "name"))
	errs = append(errs, validateTarget(&s.Target, path.Child("target"))...)
	if s.Target.AverageValue == nil {
		errs = append(errs, field.Required(path.Child("target", "averageValue"), "must specify a positive target averageValue"))
	}
	return errs
}

func validateResource(s *autoscalingv2.ResourceMetricSource, path *field.Path) (errs field.ErrorList) {
	if s.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), "must specify a resource name"))
	}
	return append(errs, validateShare(&s.Target, path.Child("target"))...)
}

func validateContainerResource(s *autoscalingv2.ContainerResourceMetricSource, path *field.Path) (errs field.ErrorList) {
	errs = validateResource(&autoscalingv2.ResourceMetricSource{Name: s.Name, Target: s.Target}, path)
	if s.Name != corev1.ResourceName("") {
		errs = append(errs, podvalidation.ContainerResourceName(s.Name, path.Child("name"))...)
	}
	if s.Container == "" {
		return append(errs, field.Required(path.Child("container"), "must specify a container"))
	}
	for _, message := range validation.IsDNS1123Label(s.Container) {
		errs = append(errs, field.Invalid(path.Child("container"), s.Container, message))
	}
	return errs
}

// validateShare is about the target of a resource: a value, or a share of what is requested.
func validateShare(t *autoscalingv2.MetricTarget, path *field.Path) field.ErrorList {
	errs := validateTarget(t, path)
	switch share, value := t.AverageUtilization != nil, t.AverageValue != nil; {
	case !share && !value:
		errs = append(errs, field.Required(path.Child("averageUtilization"), "must set either a target raw value or a target utilization"))
	case share && value:
		errs = append(errs, field.Forbidden(path.Child("averageValue"), "may not set both a target raw value and a target utilization"))
	}
	return errs
}

func validateTarget(t *autoscalingv2.MetricTarget, path *field.Path) (errs field.ErrorList) {
	switch t.Type {
	case autoscalingv2.UtilizationMetricType, autoscalingv2.ValueMetricType, autoscalingv2.AverageValueMetricType:
	case "":
		errs = append(errs, field.Required(path.Child("type"), "must specify a metric target type"))
	default:
		errs = append(errs, field.Invalid(path.Child("type"), t.Type, "must be either Utilization, Value, or AverageValue"))
	}
	if t.Value != nil && t.Value.Sign() <= 0 {
		errs = append(errs, field.Invalid(path.Child("value"), t.Value.String(), "must be positive"))
	}
	if t.AverageValue != nil && t.AverageValue.Sign() <= 0 {
		errs = append(errs, field.Invalid(path.Child("averageValue"), t.AverageValue.String(), "must be positive"))
	}
	if t.AverageUtilization != nil && *t.AverageUtilization < 1 {
		errs = append(errs, field.Invalid(path.Child("averageUtilization"), *t.AverageUtilization, "must be greater than 0"))
	}
	return errs
}
