package daemonset

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/apiserver/registry/workload"
)

func validate(d *appsv1.DaemonSet) field.ErrorList {
	errs := validateSpec(&d.Spec, nil)
	if _, err := templateGeneration(d); err != nil {
		const key = appsv1.DeprecatedTemplateGeneration
		errs = append(errs, field.Invalid(field.NewPath("metadata", "annotations").Key(key), d.Annotations[key], "must be a number"))
	}
	return errs
}

func validateUpdate(d, old *appsv1.DaemonSet) field.ErrorList {
	return append(validateSpec(&d.Spec, &old.Spec.Template),
		apivalidation.ValidateImmutableField(d.Spec.Selector, old.Spec.Selector, field.NewPath("spec", "selector"))...)
}

func validateSpec(spec *appsv1.DaemonSetSpec, old *corev1.PodTemplateSpec) field.ErrorList {
	at := field.NewPath("spec")
	errs := workload.NotNegative(at, workload.Of("minReadySeconds", spec.MinReadySeconds), workload.Optional("revisionHistoryLimit", spec.RevisionHistoryLimit))
	// One that is left out selects no template either, which is what is told then.
	selects, wrong := workload.ValidateSelector(spec.Selector, "daemonset", at.Child("selector"))
	errs = append(errs, wrong...)
	errs = append(errs, workload.ValidateTemplate(&spec.Template, old, selects, "DaemonSet", at.Child("template"))...)
	return append(errs, validateStrategy(&spec.UpdateStrategy, at.Child("updateStrategy"))...)
}

func validateStrategy(strategy *appsv1.DaemonSetUpdateStrategy, at *field.Path) field.ErrorList {
	switch strategy.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
		return nil
	case appsv1.RollingUpdateDaemonSetStrategyType:
	default:
		return field.ErrorList{field.NotSupported(at, strategy, []appsv1.DaemonSetUpdateStrategyType{
			appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType})}
	}
	rolling := at.Child("rollingUpdate")
	if strategy.RollingUpdate == nil {
		return field.ErrorList{field.Required(rolling, "")}
	}
	unavailable, surge := strategy.RollingUpdate.MaxUnavailable, strategy.RollingUpdate.MaxSurge
	errs := workload.ValidateShare(unavailable, rolling.Child("maxUnavailable"))
	errs = append(errs, workload.ValidateShare(surge, rolling.Child("maxSurge"))...)
	errs = append(errs, workload.NotMoreThanAll(unavailable, rolling.Child("maxUnavailable"))...)
	errs = append(errs, workload.NotMoreThanAll(surge, rolling.Child("maxSurge"))...)
	if len(errs) > 0 {
		return errs
	}
	// On a node there is either one pod too few or one too many.
	switch {
	case !workload.IsZero(unavailable) && !workload.IsZero(surge):
		errs = append(errs, field.Invalid(rolling.Child("maxSurge"), surge, "may not be set when maxUnavailable is non-zero"))
	case workload.IsZero(unavailable) && workload.IsZero(surge):
		errs = append(errs, field.Required(rolling.Child("maxUnavailable"), "cannot be 0 when maxSurge is 0"))
	}
	return errs
}

func validateStatus(d, old *appsv1.DaemonSet) field.ErrorList {
	s, at := &d.Status, field.NewPath("status")
	errs := workload.NotNegative(at,
		workload.Of("currentNumberScheduled", s.CurrentNumberScheduled), workload.Of("numberMisscheduled", s.NumberMisscheduled),
		workload.Of("desiredNumberScheduled", s.DesiredNumberScheduled), workload.Of("numberReady", s.NumberReady),
		workload.Of("observedGeneration", s.ObservedGeneration), workload.Of("updatedNumberScheduled", s.UpdatedNumberScheduled),
		workload.Of("numberAvailable", s.NumberAvailable), workload.Of("numberUnavailable", s.NumberUnavailable),
		workload.Optional("collisionCount", s.CollisionCount))
	return append(errs, workload.NotDecremented(s.CollisionCount, old.Status.CollisionCount, at)...)
}
