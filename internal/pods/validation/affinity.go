package validation

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxWeight is that of the preference that weighs most.
const maxWeight = 100

// NodeAffinity tells what is wrong with the affinity of a pod to nodes. path is that of the whole affinity.
func NodeAffinity(affinity *corev1.Affinity, path *field.Path) (errs field.ErrorList) {
	if affinity == nil || affinity.NodeAffinity == nil {
		return nil
	}
	nodes, path := affinity.NodeAffinity, path.Child("nodeAffinity")
	if required := nodes.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		errs = append(errs, NodeSelector(required, path.Child("requiredDuringSchedulingIgnoredDuringExecution"))...)
	}
	for i := range nodes.PreferredDuringSchedulingIgnoredDuringExecution {
		term, at := &nodes.PreferredDuringSchedulingIgnoredDuringExecution[i], path.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
		errs = append(errs, validateWeight(term.Weight, at.Child("weight"))...)
		errs = append(errs, validateTerm(&term.Preference, false, at.Child("preference"))...)
	}
	return errs
}

// NodeSelector tells what is wrong with what a node must be like.
func NodeSelector(s *corev1.NodeSelector, path *field.Path) (errs field.ErrorList) {
	at := path.Child("nodeSelectorTerms")
	if len(s.NodeSelectorTerms) == 0 {
		errs = append(errs, field.Required(at, "must have at least one node selector term"))
	}
	for i := range s.NodeSelectorTerms {
		errs = append(errs, validateTerm(&s.NodeSelectorTerms[i], true, at.Index(i))...)
	}
	return errs
}

func validateWeight(weight int32, at *field.Path) field.ErrorList {
	if weight < 1 || weight > maxWeight {
		return field.ErrorList{field.Invalid(at, weight, "must be in the range 1-100")}
	}
	return nil
}

// validateTerm is about a term of a node selector. A value that no label can have may be preferred, but not required.
func validateTerm(term *corev1.NodeSelectorTerm, required bool, at *field.Path) (errs field.ErrorList) {
	for i := range term.MatchExpressions {
		errs = append(errs, validateExpression(&term.MatchExpressions[i], required, at.Child("matchExpressions").Index(i))...)
	}
	for i := range term.MatchFields {
		errs = append(errs, validateNodeField(&term.MatchFields[i], at.Child("matchFields").Index(i))...)
	}
	return errs
}

func validateExpression(e *corev1.NodeSelectorRequirement, required bool, at *field.Path) (errs field.ErrorList) {
	values := at.Child("values")
	switch e.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(e.Values) == 0 {
			errs = append(errs, field.Required(values, "must be specified when `operator` is 'In' or 'NotIn'"))
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(e.Values) > 0 {
			errs = append(errs, field.Forbidden(values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(e.Values) != 1 {
			errs = append(errs, field.Required(values, "must be specified single value when `operator` is 'Lt' or 'Gt'"))
		}
	default:
		errs = append(errs, field.Invalid(at.Child("operator"), e.Operator, "not a valid selector operator"))
	}
	errs = append(errs, metavalidation.ValidateLabelName(e.Key, at.Child("key"))...)
	for i, value := range e.Values {
		errs = append(errs, invalidIf(required, value, values.Index(i), validation.IsValidLabelValue)...)
	}
	return errs
}

// validateNodeField is about a field of a node that is asked for: there is one, its name.
func validateNodeField(e *corev1.NodeSelectorRequirement, at *field.Path) (errs field.ErrorList) {
	switch e.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(e.Values) != 1 {
			errs = append(errs, field.Required(at.Child("values"), "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"))
		}
	default:
		errs = append(errs, field.Invalid(at.Child("operator"), e.Operator, "not a valid selector operator"))
	}
	if e.Key != metav1.ObjectNameField {
		return append(errs, field.Invalid(at.Child("key"), e.Key, "not a valid field selector key"))
	}
	for i, value := range e.Values {
		errs = append(errs, invalidIf(true, value, at.Child("values").Index(i), validation.IsDNS1123Subdomain)...)
	}
	return errs
}

// validateGates is about what holds a pod back from getting a node.
func validateGates(gates []corev1.PodSchedulingGate, at *field.Path) (errs field.ErrorList) {
	seen := sets.New[string]()
	for i, gate := range gates {
		errs = append(errs, invalidIf(true, gate.Name, at.Index(i), validation.IsQualifiedName)...)
		if seen.Has(gate.Name) {
			errs = append(errs, field.Duplicate(at.Index(i), gate.Name))
		}
		seen.Insert(gate.Name)
	}
	return errs
}
