package job

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// How much there may be in the policies of a job.
const (
	maxRules            = 20
	maxExitCodes        = 255
	maxConditions       = 20
	maxSucceededIndexes = 64 << 10 // bytes
)

// known requires a value to be one of those allowed; nil: there is none.
func known[T ~string](value *T, path *field.Path, allowed ...T) field.ErrorList {
	switch {
	case value == nil || slices.Contains(allowed, *value):
		return nil
	case *value == "":
		return field.ErrorList{field.Required(path, fmt.Sprintf("valid values: %q", allowed))}
	}
	return field.ErrorList{field.NotSupported(path, *value, allowed)}
}

func validateFailurePolicy(spec *batchv1.JobSpec, path *field.Path) (errs field.ErrorList) {
	rules, path := spec.PodFailurePolicy.Rules, path.Child("rules")
	if len(rules) > maxRules {
		errs = append(errs, field.TooMany(path, len(rules), maxRules))
	}
	names := sets.New[string]()
	for _, list := range [][]corev1.Container{spec.Template.Spec.Containers, spec.Template.Spec.InitContainers} {
		for i := range list {
			names.Insert(list[i].Name)
		}
	}
	for i := range rules {
		rule, at := &rules[i], path.Index(i)
		if rule.Action == batchv1.PodFailurePolicyActionFailIndex && spec.BackoffLimitPerIndex == nil {
			errs = append(errs, field.Invalid(at.Child("action"), rule.Action, "requires the backoffLimitPerIndex to be set"))
		}
		errs = append(errs, validateFailureRule(rule, names, at)...)
	}
	return errs
}

func validateFailureRule(rule *batchv1.PodFailurePolicyRule, containers sets.Set[string], path *field.Path) field.ErrorList {
	errs := known(&rule.Action, path.Child("action"), batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex,
		batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore)
	switch codes, conditions := rule.OnExitCodes != nil, len(rule.OnPodConditions) > 0; {
	case codes && conditions:
		errs = append(errs, field.Invalid(path, field.OmitValueType{}, "specifying both OnExitCodes and OnPodConditions is not supported"))
	case !codes && !conditions:
		errs = append(errs, field.Invalid(path, field.OmitValueType{}, "specifying one of OnExitCodes and OnPodConditions is required"))
	}
	if rule.OnExitCodes != nil {
		errs = append(errs, validateExitCodes(rule.OnExitCodes, containers, path.Child("onExitCodes"))...)
	}
	at := path.Child("onPodConditions")
	if n := len(rule.OnPodConditions); n > maxConditions {
		errs = append(errs, field.TooMany(at, n, maxConditions))
	}
	for i := range rule.OnPodConditions {
		pattern, at := &rule.OnPodConditions[i], at.Index(i)
		for _, message := range validation.IsQualifiedName(string(pattern.Type)) {
			errs = append(errs, field.Invalid(at.Child("type"), pattern.Type, message))
		}
		errs = append(errs, known(&pattern.Status, at.Child("status"), corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown)...)
	}
	return errs
}

func validateExitCodes(on *batchv1.PodFailurePolicyOnExitCodesRequirement, containers sets.Set[string], path *field.Path) field.ErrorList {
	errs := known(&on.Operator, path.Child("operator"), batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn)
	if name := on.ContainerName; name != nil && !containers.Has(*name) {
		errs = append(errs, field.Invalid(path.Child("containerName"), *name, "must be one of the container or initContainer names in the pod template"))
	}
	at := path.Child("values")
	switch n := len(on.Values); {
	case n == 0:
		errs = append(errs, field.Invalid(at, on.Values, "at least one value is required"))
	case n > maxExitCodes:
		errs = append(errs, field.TooMany(at, n, maxExitCodes))
	}
	seen := sets.New[int32]()
	for i, code := range on.Values {
		if code == 0 && on.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn {
			errs = append(errs, field.Invalid(at.Index(i), code, "must not be 0 for the In operator"))
		}
		if seen.Has(code) {
			errs = append(errs, field.Duplicate(at.Index(i), code))
		}
		seen.Insert(code)
	}
	if !slices.IsSorted(on.Values) {
		errs = append(errs, field.Invalid(at, on.Values, "must be ordered"))
	}
	return errs
}

func validateSuccessPolicy(policy *batchv1.SuccessPolicy, completions int32, path *field.Path) (errs field.ErrorList) {
	switch n := len(policy.Rules); {
	case n == 0:
		errs = append(errs, field.Required(path, "at least one rule must be specified when the successPolicy is specified"))
	case n > maxRules:
		errs = append(errs, field.TooMany(path, n, maxRules))
	}
	for i := range policy.Rules {
		errs = append(errs, validateSuccessRule(&policy.Rules[i], completions, path.Index(i))...)
	}
	return errs
}

func validateSuccessRule(rule *batchv1.SuccessPolicyRule, completions int32, path *field.Path) (errs field.ErrorList) {
	if rule.SucceededCount == nil && rule.SucceededIndexes == nil {
		errs = append(errs, field.Required(path, "at least one of succeededCount or succeededIndexes must be specified"))
	}
	most, of := int(completions), "completions"
	if text := rule.SucceededIndexes; text != nil {
		at := path.Child("succeededIndexes")
		if len(*text) > maxSucceededIndexes {
			return append(errs, field.TooLong(at, "", maxSucceededIndexes))
		}
		count, err := countIndexes(*text, completions)
		if err != nil {
			return append(errs, field.Invalid(at, *text, err.Error()))
		}
		most, of = count, "indexes in succeededIndexes"
	}
	if count := rule.SucceededCount; count != nil {
		at := path.Child("succeededCount")
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*count), at)...)
		if int(*count) > most {
			errs = append(errs, field.Invalid(at, *count, fmt.Sprintf("must be less than or equal to %d, the number of %s", most, of)))
		}
	}
	return errs
}
