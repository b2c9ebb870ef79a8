package workload

import (
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods/validation"
)

// SetDefault fills in what a client may leave out.
func SetDefault[V any](at **V, value V) {
	if *at == nil {
		*at = &value
	}
}

// ValidateSelector tells what is wrong with the selector of the pods of a kind of workload, and what it selects. One that is left out selects nothing: whether
// it may be, the caller says.
func ValidateSelector(selector *metav1.LabelSelector, kind string, path *field.Path) (labels.Selector, field.ErrorList) {
	errs := metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{}, path)
	if selector != nil && len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		errs = append(errs, field.Invalid(path, selector, "empty selector is invalid for "+kind))
	}
	selects, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		if len(errs) == 0 {
			errs = append(errs, field.Invalid(path, selector, err.Error()))
		}
		return labels.Everything(), errs // there is nothing to say of what is selected
	}
	return selects, errs
}

// RequireSelector is ValidateSelector of a selector that may not be left out.
func RequireSelector(selector *metav1.LabelSelector, kind string, path *field.Path) (labels.Selector, field.ErrorList) {
	selects, errs := ValidateSelector(selector, kind, path)
	if selector == nil {
		errs = append(errs, field.Required(path, ""))
	}
	return selects, errs
}

// ValidateTemplate tells what is wrong with the template of a kind of workload whose pods are those that selects finds. old is the template that it takes
// the place of, nil for a new one: what was wrong with it already, by the rules of now, does not keep the object from being changed.
func ValidateTemplate(template, old *corev1.PodTemplateSpec, selects labels.Selector, kind string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !selects.Matches(labels.Set(template.Labels)) {
		errs = append(errs, field.Invalid(path.Child("metadata", "labels"), template.Labels, "`selector` does not match template `labels`"))
	}
	return append(errs, added(template, old, func(t *corev1.PodTemplateSpec) field.ErrorList { return validateTemplate(t, kind, path) })...)
}

// ValidatePods tells what is wrong with a template whatever it is of. old is as it is for ValidateTemplate.
func ValidatePods(template, old *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	return added(template, old, func(t *corev1.PodTemplateSpec) field.ErrorList { return validation.Template(t, path) })
}

func validateTemplate(template *corev1.PodTemplateSpec, kind string, path *field.Path) field.ErrorList {
	errs, spec := validation.Template(template, path), path.Child("spec")
	if policy := template.Spec.RestartPolicy; policy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(spec.Child("restartPolicy"), policy, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if template.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(spec.Child("activeDeadlineSeconds"), "activeDeadlineSeconds in "+kind+" is not supported"))
	}
	return errs
}

// added are the errors of a template that the old one has not.
func added(template, old *corev1.PodTemplateSpec, validate func(*corev1.PodTemplateSpec) field.ErrorList) field.ErrorList {
	errs := validate(template)
	if len(errs) == 0 || old == nil {
		return errs
	}
	before := validate(old)
	return slices.DeleteFunc(errs, func(e *field.Error) bool {
		return slices.ContainsFunc(before, func(b *field.Error) bool { return reflect.DeepEqual(b, e) })
	})
}

// Warnings tells what is legal in a template, which stands at spec.template, but hardly meant.
func Warnings(template *corev1.PodTemplateSpec) []string {
	return validation.TemplateWarnings(template, field.NewPath("spec", "template"))
}

// NameWarnings are about a name that the names of pods begin with.
func NameWarnings(name string) []string {
	if wrong := utilvalidation.IsDNS1123Label(name); len(wrong) > 0 {
		return []string{fmt.Sprintf("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: %v", wrong)}
	}
	return nil
}
