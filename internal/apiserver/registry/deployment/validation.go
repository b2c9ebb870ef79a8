package deployment

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/apiserver/registry/workload"
)

func validate(d *appsv1.Deployment) field.ErrorList { return validateSpec(d, nil) }

func validateUpdate(d, old *appsv1.Deployment) field.ErrorList {
	return append(validateSpec(d, &old.Spec.Template),
		apivalidation.ValidateImmutableField(d.Spec.Selector, old.Spec.Selector, field.NewPath("spec", "selector"))...)
}

func validateSpec(d *appsv1.Deployment, old *corev1.PodTemplateSpec) field.ErrorList {
	spec, at := &d.Spec, field.NewPath("spec")
	errs := workload.NotNegative(at, workload.Optional("replicas", spec.Replicas), workload.Of("minReadySeconds", spec.MinReadySeconds),
		workload.Optional("revisionHistoryLimit", spec.RevisionHistoryLimit), workload.Optional("progressDeadlineSeconds", spec.ProgressDeadlineSeconds))
	if deadline := spec.ProgressDeadlineSeconds; deadline != nil && *deadline <= spec.MinReadySeconds {
		errs = append(errs, field.Invalid(at.Child("progressDeadlineSeconds"), *deadline, "must be greater than minReadySeconds"))
	}
	selects, wrong := workload.RequireSelector(spec.Selector, "deployment", at.Child("selector"))
	errs = append(errs, wrong...)
	errs = append(errs, workload.ValidateTemplate(&spec.Template, old, selects, "Deployment", at.Child("template"))...)
	errs = append(errs, validateStrategy(&spec.Strategy, at.Child("strategy"))...)
	return append(errs, validateRollback(d.Annotations)...)
}

func validateStrategy(strategy *appsv1.DeploymentStrategy, at *field.Path) field.ErrorList {
	rolling := at.Child("rollingUpdate")
	switch strategy.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if strategy.RollingUpdate != nil {
			return field.ErrorList{field.Forbidden(rolling, "may not be specified when strategy `type` is 'Recreate'")}
		}
		return nil
	case appsv1.RollingUpdateDeploymentStrategyType:
		if strategy.RollingUpdate == nil {
			return field.ErrorList{field.Required(rolling, "")}
		}
	default:
		return field.ErrorList{field.NotSupported(at, strategy, []appsv1.DeploymentStrategyType{
			appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType})}
	}
	unavailable, surge := strategy.RollingUpdate.MaxUnavailable, strategy.RollingUpdate.MaxSurge
	errs := workload.ValidateShare(unavailable, rolling.Child("maxUnavailable"))
	errs = append(errs, workload.ValidateShare(surge, rolling.Child("maxSurge"))...)
	if len(errs) == 0 && workload.IsZero(unavailable) && workload.IsZero(surge) {
		errs = append(errs, field.Invalid(rolling.Child("maxUnavailable"), unavailable, "may not be 0 when `maxSurge` is 0"))
	}
	return append(errs, workload.NotMoreThanAll(unavailable, rolling.Child("maxUnavailable"))...)
}

// validateRollback is about the annotation that stands for a field of earlier versions of the API: to which revision the deployment is to go back.
func validateRollback(annotations map[string]string) field.ErrorList {
	const key = appsv1.DeprecatedRollbackTo
	value := annotations[key]
	if value == "" {
		return nil
	}
	at := field.NewPath("metadata", "annotations").Key(key)
	revision, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return field.ErrorList{field.Invalid(at, value, "must be the number of a revision")}
	}
	return apivalidation.ValidateNonnegativeField(revision, at)
}

func validateStatus(d, old *appsv1.Deployment) field.ErrorList {
	s, at := &d.Status, field.NewPath("status")
	errs := workload.Counts{
		Replicas: s.Replicas, Ready: s.ReadyReplicas, Available: s.AvailableReplicas,
		Parts: []workload.Number{workload.Of("updatedReplicas", s.UpdatedReplicas)},
		Others: []workload.Number{
			workload.Of("observedGeneration", s.ObservedGeneration), workload.Of("unavailableReplicas", s.UnavailableReplicas),
			workload.Optional("terminatingReplicas", s.TerminatingReplicas), workload.Optional("collisionCount", s.CollisionCount),
		},
	}.Validate(at)
	return append(errs, workload.NotDecremented(s.CollisionCount, old.Status.CollisionCount, at)...)
}
