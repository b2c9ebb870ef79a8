package horizontalpodautoscaler

import (
	"errors"
	"fmt"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// How long ago a change of scale may count, in seconds.
const (
	maxPeriod = 1800
	maxWindow = 3600
)

// validate tells what is wrong with an autoscaler. old is the one that it replaces; nil: it is new.
func validate(a, old *autoscaler) field.ErrorList {
	spec, path := &a.Spec, field.NewPath("spec")
	errs := validateReplicas(spec, old, path)
	errs = append(errs, validateReference(&spec.ScaleTargetRef, apiVersionOfTarget(a, old), path.Child("scaleTargetRef"))...)
	errs = append(errs, validateMetrics(spec, apiVersionOfMetrics(old), path.Child("metrics"))...)
	if spec.Behavior != nil {
		errs = append(errs, validateRules(spec.Behavior.ScaleUp, path.Child("behavior", "scaleUp"))...)
		errs = append(errs, validateRules(spec.Behavior.ScaleDown, path.Child("behavior", "scaleDown"))...)
	}
	return errs
}

// validateReplicas: there is always a pod, but where there was none before.
func validateReplicas(spec *autoscalingv2.HorizontalPodAutoscalerSpec, old *autoscaler, path *field.Path) (errs field.ErrorList) {
	least := int32(1)
	if old != nil && old.Spec.MinReplicas != nil && *old.Spec.MinReplicas == 0 {
		least = 0
	}
	minimum, at := ptr.Deref(spec.MinReplicas, 1), path.Child("maxReplicas")
	if minimum < least {
		errs = append(errs, field.Invalid(path.Child("minReplicas"), minimum, fmt.Sprintf("must be greater than or equal to %d", least)))
	}
	switch {
	case spec.MaxReplicas == 0:
		errs = append(errs, field.Required(at, "must be set and greater than 0"))
	case spec.MaxReplicas < 0:
		errs = append(errs, field.Invalid(at, spec.MaxReplicas, "must be greater than or equal to 1"))
	case spec.MaxReplicas < minimum:
		errs = append(errs, field.Invalid(at, spec.MaxReplicas, "must be greater than or equal to `minReplicas`"))
	}
	return errs
}

// groupRule is what is asked of the apiVersion of a reference.
type groupRule int

const (
	// anyVersion: nothing.
	anyVersion groupRule = iota
	// wellFormed: a group and a version, or a version alone, or nothing.
	wellFormed
	// withGroup: a group and a version.
	withGroup
)

func (r groupRule) check(apiVersion string) error {
	if r == anyVersion {
		return nil
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err == nil && gv.Group == "" && r == withGroup {
		err = errors.New("apiVersion must specify API group")
	}
	return err
}

// apiVersionOfTarget: what is scaled is of a group, unless it is the one kind of core/v1 that has a scale. What it was already is let be.
func apiVersionOfTarget(a, old *autoscaler) groupRule {
	to := &a.Spec.ScaleTargetRef
	switch {
	case old != nil && old.Spec.ScaleTargetRef.APIVersion == to.APIVersion && old.Spec.ScaleTargetRef.Kind == to.Kind:
		return anyVersion
	case to.Kind == "ReplicationController":
		return wellFormed
	}
	return withGroup
}

// apiVersionOfMetrics: an autoscaler that has had objects with versions that are none may go on so.
func apiVersionOfMetrics(old *autoscaler) groupRule {
	if old != nil && slices.ContainsFunc(old.Spec.Metrics, func(m autoscalingv2.MetricSpec) bool {
		return m.Type == autoscalingv2.ObjectMetricSourceType && m.Object != nil && wellFormed.check(m.Object.DescribedObject.APIVersion) != nil
	}) {
		return anyVersion
	}
	return wellFormed
}

func validateReference(ref *autoscalingv2.CrossVersionObjectReference, rule groupRule, path *field.Path) field.ErrorList {
	errs := validatePathSegment(ref.Kind, "", path.Child("kind"))
	errs = append(errs, validatePathSegment(ref.Name, "", path.Child("name"))...)
	if err := rule.check(ref.APIVersion); err != nil {
		errs = append(errs, field.Invalid(path.Child("apiVersion"), ref.APIVersion, err.Error()))
	}
	return errs
}

// validatePathSegment is for what is a part of a path in another API.
func validatePathSegment(value, missing string, path *field.Path) (errs field.ErrorList) {
	if value == "" {
		return field.ErrorList{field.Required(path, missing)}
	}
	for _, message := range content.IsPathSegmentName(value) {
		errs = append(errs, field.Invalid(path, value, message))
	}
	return errs
}

// validateRules is about the rules of one direction.
func validateRules(r *autoscalingv2.HPAScalingRules, path *field.Path) (errs field.ErrorList) {
	if r == nil {
		return nil
	}
	if s := r.StabilizationWindowSeconds; s != nil && (*s < 0 || *s > maxWindow) {
		errs = append(errs, field.Invalid(path.Child("stabilizationWindowSeconds"), *s, fmt.Sprintf("must be between 0 and %d", maxWindow)))
	}
	selects := []autoscalingv2.ScalingPolicySelect{autoscalingv2.DisabledPolicySelect, autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect}
	if p := r.SelectPolicy; p != nil && !slices.Contains(selects, *p) {
		errs = append(errs, field.NotSupported(path.Child("selectPolicy"), *p, selects))
	}
	if len(r.Policies) == 0 {
		errs = append(errs, field.Required(path.Child("policies"), "must specify at least one Policy"))
	}
	types := []autoscalingv2.HPAScalingPolicyType{autoscalingv2.PercentScalingPolicy, autoscalingv2.PodsScalingPolicy}
	for i, p := range r.Policies {
		at := path.Child("policies").Index(i)
		if !slices.Contains(types, p.Type) {
			errs = append(errs, field.NotSupported(at.Child("type"), p.Type, types))
		}
		if p.Value <= 0 {
			errs = append(errs, field.Invalid(at.Child("value"), p.Value, "must be greater than zero"))
		}
		if p.PeriodSeconds <= 0 || p.PeriodSeconds > maxPeriod {
			errs = append(errs, field.Invalid(at.Child("periodSeconds"), p.PeriodSeconds, fmt.Sprintf("must be greater than zero, and at most %d", maxPeriod)))
		}
	}
	if t := r.Tolerance; t != nil && t.Sign() < 0 {
		errs = append(errs, field.Invalid(path.Child("tolerance"), t.String(), "must be greater than or equal to 0"))
	}
	return errs
}
