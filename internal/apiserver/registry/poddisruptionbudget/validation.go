package poddisruptionbudget

import (
	"slices"
	"strconv"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
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
func validateShare(n *intstr.IntOrString, path *field.Path) (errs field.ErrorList) {
	if n == nil {
		return nil
	}
	if n.Type == intstr.Int {
		return apivalidation.ValidateNonnegativeField(int64(n.IntVal), path)
	}
	wrong := validation.IsValidPercent(n.StrVal)
	for _, message := range wrong {
		errs = append(errs, field.Invalid(path, n.StrVal, message))
	}
	if percent, err := strconv.Atoi(strings.TrimSuffix(n.StrVal, "%")); len(wrong) == 0 && (err != nil || percent > 100) {
		errs = append(errs, field.Invalid(path, n.StrVal, "must not be greater than 100%"))
	}
	return errs
}

func validateStatus(b, _ *policyv1.PodDisruptionBudget) field.ErrorList {
	path := field.NewPath("status")
	errs := metavalidation.ValidateConditions(b.Status.Conditions, path.Child("conditions"))
	for _, n := range []struct {
		name  string
		value int32
	}{
		{"disruptionsAllowed", b.Status.DisruptionsAllowed}, {"currentHealthy", b.Status.CurrentHealthy},
		{"desiredHealthy", b.Status.DesiredHealthy}, {"expectedPods", b.Status.ExpectedPods},
	} {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(n.value), path.Child(n.name))...)
	}
	return errs
}
