package job

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"monopod.dev/monopod/internal/apiserver/registry/workload"
)

// How large a job may be. Above manyCompletions its indexes can only be kept track of when few run, and fail, at a time.
const (
	maxIndexedParallelism = 100_000
	maxFailedIndexes      = 100_000
	manyCompletions       = 100_000
	maxOfMany             = 10_000
	maxManagedBy          = 63
)

// validate tells what is wrong with a new job beside its metadata.
func validate(j *batchv1.Job) field.ErrorList {
	return append(validateJob(j, true), workload.ValidatePods(&j.Spec.Template, nil, templatePath())...)
}

func templatePath() *field.Path { return field.NewPath("spec", "template") }

// validateJob tells what is wrong with a job beside its template. prefixed: its pods have the labels with the prefix.
func validateJob(j *batchv1.Job, prefixed bool) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateGenerated(j, prefixed)
	errs = append(errs, validateSpec(&j.Spec, path)...)
	if j.Spec.Selector == nil {
		errs = append(errs, field.Required(path.Child("selector"), ""))
	} else {
		errs = append(errs, metavalidation.ValidateLabelSelector(j.Spec.Selector, metavalidation.LabelSelectorValidationOptions{}, path.Child("selector"))...)
		if s, err := metav1.LabelSelectorAsSelector(j.Spec.Selector); err == nil && !s.Matches(labels.Set(j.Spec.Template.Labels)) {
			errs = append(errs, field.Invalid(path.Child("template", "metadata", "labels"), j.Spec.Template.Labels, "`selector` does not match template `labels`"))
		}
	}
	if n := ptr.Deref(j.Spec.Completions, 0); isIndexed(&j.Spec) && n > 0 {
		// The pods' hostnames are the job's name and their index.
		if last := fmt.Sprintf("%s-%d", j.Name, n-1); len(validation.IsDNS1123Label(last)) > 0 {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), j.Name, fmt.Sprintf("must be shorter: the hostname of its last pod, '%s', must be a DNS label", last)))
		}
	}
	return errs
}

func isIndexed(spec *batchv1.JobSpec) bool {
	return ptr.Deref(spec.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.IndexedCompletion
}

// ValidateTemplate tells what is wrong with a template that jobs are made from, with its defaults set. old is the one that it replaces; nil: it is new.
func ValidateTemplate(template, old *batchv1.JobTemplateSpec, path *field.Path) field.ErrorList {
	spec, at := &template.Spec, path.Child("spec")
	errs := validateSpec(spec, at)
	var was *corev1.PodTemplateSpec
	if old != nil {
		was = &old.Spec.Template
	}
	errs = append(errs, workload.ValidatePods(&spec.Template, was, at.Child("template"))...)
	if spec.Selector != nil {
		errs = append(errs, field.Invalid(at.Child("selector"), spec.Selector, "`selector` will be auto-generated"))
	}
	if ptr.Deref(spec.ManualSelector, false) {
		errs = append(errs, field.NotSupported(at.Child("manualSelector"), true, []string{"nil", "false"}))
	}
	return errs
}

// validateSpec tells what is wrong with a job's specification, beside its selector and its template's own.
func validateSpec(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	errs := validateNumbers(spec, path)
	if m := spec.CompletionMode; m != nil && *m != batchv1.NonIndexedCompletion && *m != batchv1.IndexedCompletion {
		errs = append(errs, field.NotSupported(path.Child("completionMode"), *m, []batchv1.CompletionMode{batchv1.NonIndexedCompletion, batchv1.IndexedCompletion}))
	} else if isIndexed(spec) {
		errs = append(errs, validateIndexed(spec, path)...)
	} else {
		errs = append(errs, validateNotIndexed(spec, path)...)
	}
	if by := spec.ManagedBy; by != nil {
		errs = append(errs, validation.IsDomainPrefixedPath(path.Child("managedBy"), *by)...)
		if len(*by) > maxManagedBy {
			errs = append(errs, field.TooLong(path.Child("managedBy"), "", maxManagedBy))
		}
	}
	if spec.PodFailurePolicy != nil {
		errs = append(errs, validateFailurePolicy(spec, path.Child("podFailurePolicy"))...)
	}
	errs = append(errs, validateReplacement(spec, path.Child("podReplacementPolicy"))...)
	return append(errs, validateRestart(spec, path.Child("template", "spec", "restartPolicy"))...)
}

func validateNumbers(spec *batchv1.JobSpec, path *field.Path) (errs field.ErrorList) {
	errs = workload.NotNegative(path, workload.Optional("parallelism", spec.Parallelism), workload.Optional("completions", spec.Completions),
		workload.Optional("backoffLimit", spec.BackoffLimit), workload.Optional("ttlSecondsAfterFinished", spec.TTLSecondsAfterFinished),
		workload.Optional("backoffLimitPerIndex", spec.BackoffLimitPerIndex), workload.Optional("maxFailedIndexes", spec.MaxFailedIndexes))
	if s := spec.ActiveDeadlineSeconds; s != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(*s, path.Child("activeDeadlineSeconds"))...)
	}
	if spec.MaxFailedIndexes != nil && spec.BackoffLimitPerIndex == nil {
		errs = append(errs, field.Required(path.Child("backoffLimitPerIndex"), "when maxFailedIndexes is specified"))
	}
	return errs
}

func validateIndexed(spec *batchv1.JobSpec, path *field.Path) (errs field.ErrorList) {
	failed, parallelism := spec.MaxFailedIndexes, ptr.Deref(spec.Parallelism, 0)
	tooHigh := func(name string, value, limit int32, when string) {
		if value > limit {
			errs = append(errs, field.Invalid(path.Child(name), value, fmt.Sprintf("must be less than or equal to %d%s", limit, when)))
		}
	}
	tooHigh("parallelism", parallelism, maxIndexedParallelism, " when completion mode is Indexed")
	tooHigh("maxFailedIndexes", ptr.Deref(failed, 0), maxFailedIndexes, "")
	if spec.Completions == nil {
		return append(errs, field.Required(path.Child("completions"), "when completion mode is Indexed"))
	}
	tooHigh("maxFailedIndexes", ptr.Deref(failed, 0), *spec.Completions, ", the completions")
	if *spec.Completions > manyCompletions && spec.BackoffLimitPerIndex != nil {
		if failed == nil {
			errs = append(errs, field.Required(path.Child("maxFailedIndexes"), fmt.Sprintf("must be specified when completions is above %d", manyCompletions)))
		}
		when := fmt.Sprintf(" when completions are above %d and used with backoff limit per index", manyCompletions)
		tooHigh("parallelism", parallelism, maxOfMany, when)
		tooHigh("maxFailedIndexes", ptr.Deref(failed, 0), maxOfMany, when)
	}
	if spec.SuccessPolicy != nil {
		errs = append(errs, validateSuccessPolicy(spec.SuccessPolicy, *spec.Completions, path.Child("successPolicy", "rules"))...)
	}
	return errs
}

func validateNotIndexed(spec *batchv1.JobSpec, path *field.Path) (errs field.ErrorList) {
	const needs = "requires indexed completion mode"
	if n := spec.BackoffLimitPerIndex; n != nil {
		errs = append(errs, field.Invalid(path.Child("backoffLimitPerIndex"), *n, needs))
	}
	if n := spec.MaxFailedIndexes; n != nil {
		errs = append(errs, field.Invalid(path.Child("maxFailedIndexes"), *n, needs))
	}
	if spec.SuccessPolicy != nil {
		errs = append(errs, field.Invalid(path.Child("successPolicy"), field.OmitValueType{}, needs))
	}
	return errs
}

// validateRestart: a pod that is started again for ever never ends, and one with a failure policy is to end when it fails. What is no policy at all the
// template's own rules refuse.
func validateRestart(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	switch policy := spec.Template.Spec.RestartPolicy; {
	case policy == corev1.RestartPolicyAlways:
		return field.ErrorList{field.Required(path, fmt.Sprintf("valid values: %q, %q", corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever))}
	case policy == corev1.RestartPolicyOnFailure && spec.PodFailurePolicy != nil:
		return field.ErrorList{field.Invalid(path, policy, fmt.Sprintf("only %q is supported when podFailurePolicy is specified", corev1.RestartPolicyNever))}
	}
	return nil
}

func validateReplacement(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	allowed := []batchv1.PodReplacementPolicy{batchv1.Failed}
	if spec.PodFailurePolicy == nil {
		allowed = append(allowed, batchv1.TerminatingOrFailed)
	}
	return known(spec.PodReplacementPolicy, path, allowed...)
}
