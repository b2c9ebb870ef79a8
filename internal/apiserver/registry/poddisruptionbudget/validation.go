package poddisruptionbudget

import (
	"slices"

	policyv1 "k8s.io/api/policy/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/apiserver/registry/workload"
)

func validate(b *policyv1.PodDisruptionBudget) field.ErrorList { return validateSpec(&b.Spec, false) }

// validateUpdate tells what is wrong with a budget that replaces old. A selector that was let in with a wrong value may stay.
func validateUpdate(b, old *policyv1.PodDisruptionBudget) field.ErrorList {
	return validateSpec(&b.Spec, len(metavalidation.ValidateLabelSelector(old.Spec.Selector, metavalidation.LabelSelectorValidationOptions{}, nil)) > 0)
}

func validateSpec(spec *policyv1.PodDisruptionBudgetSpec, wrongValues bool) (errs field.ErrorList) {
	path := field.NewPath("spec")
	if spec.MinAvailable != nil && spec.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(path, field.OmitValueType{}, "minAvailable and maxUnavailable cannot be both set"))
	}
	errs = append(errs, validateShare(spec.MinAvailable, path.Child("minAvailable"))...)
	errs = append(errs, validateShare(spec.MaxUnavailable, path.Child("maxUnavailable"))...)
	errs = append(errs, metavalidation.ValidateLabelSelector(spec.Selector,
		metavalidation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: wrongValues}, path.Child("selector"))...)
	policies := []policyv1.UnhealthyPodEvictionPolicyType{policyv1.AlwaysAllow, policyv1.IfHealthyBudget}
	if p := spec.UnhealthyPodEvictionPolicy; p != nil && !slices.Contains(policies, *p) {
		errs = append(errs, field.NotSupported(path.Child("unhealthyPodEvictionPolicy"), *p, policies))
	}
	return errs
}

// validateShare: a number of pods, or a share of them of at most all.
func validateShare(n *intstr.IntOrString, path *field.Path) field.ErrorList {
	return append(workload.ValidateShare(n, path), workload.NotMoreThanAll(n, path)...)
}

func validateStatus(b, _ *policyv1.PodDisruptionBudget) field.ErrorList {
	path := field.NewPath("status")
	errs := metavalidation.ValidateConditions(b.Status.Conditions, path.Child("conditions"))
	return append(errs, workload.NotNegative(path, workload.Of("disruptionsAllowed", b.Status.DisruptionsAllowed), workload.Of("currentHealthy", b.Status.CurrentHealthy),
		workload.Of("desiredHealthy", b.Status.DesiredHealthy), workload.Of("expectedPods", b.Status.ExpectedPods))...)
}
