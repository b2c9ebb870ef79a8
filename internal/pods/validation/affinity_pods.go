package validation

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods"
)

// validatePodTerms is about which other pods one wants to be near to, or far from.
func validatePodTerms(spec *corev1.PodSpec, path *field.Path) (errs field.ErrorList) {
	for term := range pods.PodTerms(spec) {
		if !term.Required {
			errs = append(errs, validateWeight(term.Weight, term.Item(path).Child("weight"))...)
		}
		errs = append(errs, validatePodTerm(term.PodAffinityTerm, term.Path(path))...)
	}
	return errs
}

func validatePodTerm(term *corev1.PodAffinityTerm, at *field.Path) (errs field.ErrorList) {
	errs = append(errs, validateSelector(term.LabelSelector, at.Child("labelSelector"))...)
	errs = append(errs, validateSelector(term.NamespaceSelector, at.Child("namespaceSelector"))...)
	for i, name := range term.Namespaces {
		for _, message := range apivalidation.ValidateNamespaceName(name, false) {
			errs = append(errs, field.Invalid(at.Child("namespaces").Index(i), name, message))
		}
	}
	errs = append(errs, validateLabelKeys(term.MatchLabelKeys, term.MismatchLabelKeys, term.LabelSelector, at)...)
	key := at.Child("topologyKey")
	if term.TopologyKey == "" {
		errs = append(errs, field.Required(key, "can not be empty"))
	}
	return append(errs, metavalidation.ValidateLabelName(term.TopologyKey, key)...)
}

func validateSelector(selector *metav1.LabelSelector, at *field.Path) field.ErrorList {
	return metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{}, at)
}

// validateLabelKeys is about labels whose values a selector takes from the pod itself. When a pod is made, they have become a part of the selector already:
// a key that is there twice was given in both places. In a template, where they have not, a selector may say something of a key once.
func validateLabelKeys(match, mismatch []string, selector *metav1.LabelSelector, at *field.Path) (errs field.ErrorList) {
	errs = append(errs, validateKeys(match, selector, at.Child("matchLabelKeys"))...)
	errs = append(errs, validateKeys(mismatch, selector, at.Child("mismatchLabelKeys"))...)
	for i, key := range match {
		if said(selector, key) > 1 {
			errs = append(errs, field.Invalid(at.Child("matchLabelKeys").Index(i), key, "exists in both matchLabelKeys and labelSelector"))
		}
		if slices.Contains(mismatch, key) {
			errs = append(errs, field.Invalid(at.Child("matchLabelKeys").Index(i), key, "exists in both matchLabelKeys and mismatchLabelKeys"))
		}
	}
	return errs
}

func validateKeys(keys []string, selector *metav1.LabelSelector, at *field.Path) (errs field.ErrorList) {
	if len(keys) > 0 && selector == nil {
		return field.ErrorList{field.Forbidden(at, "must not be specified when labelSelector is not set")}
	}
	for i, key := range keys {
		errs = append(errs, metavalidation.ValidateLabelName(key, at.Index(i))...)
	}
	return errs
}

// said is how often a selector speaks of a label.
func said(selector *metav1.LabelSelector, key string) (n int) {
	if selector == nil {
		return 0
	}
	if _, ok := selector.MatchLabels[key]; ok {
		n++
	}
	for _, e := range selector.MatchExpressions {
		if e.Key == key {
			n++
		}
	}
	return n
}
