package review

import (
	"errors"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// validateSelectors checks those by which the objects of a request are selected. Operators that are not known here are let pass: who asks may be newer.
func validateSelectors(r *authorizationv1.ResourceAttributes, path *field.Path) (errs field.ErrorList) {
	if s := r.FieldSelector; s != nil {
		at := path.Child("fieldSelector")
		errs = append(errs, oneForm(s.RawSelector, len(s.Requirements), at)...)
		for i, requirement := range s.Requirements {
			errs = append(errs, metavalidation.ValidateFieldSelectorRequirement(requirement,
				metavalidation.FieldSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}, at.Child("requirements").Index(i))...)
		}
	}
	if s := r.LabelSelector; s != nil {
		at := path.Child("labelSelector")
		errs = append(errs, oneForm(s.RawSelector, len(s.Requirements), at)...)
		for i, requirement := range s.Requirements {
			errs = append(errs, metavalidation.ValidateLabelSelectorRequirement(requirement,
				metavalidation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}, at.Child("requirements").Index(i))...)
		}
	}
	return errs
}

// oneForm requires a selector to be written in one of its two forms.
func oneForm(raw string, requirements int, path *field.Path) field.ErrorList {
	switch {
	case raw != "" && requirements > 0:
		return field.ErrorList{field.Invalid(path.Child("rawSelector"), raw, "may not specified at the same time as requirements")}
	case raw == "" && requirements == 0:
		return field.ErrorList{field.Required(path.Child("requirements"), fmt.Sprintf("when %s is specified, requirements or rawSelector is required", path))}
	}
	return nil
}

// addSelectors gives the attributes of a request its selectors. What cannot be read of them is left out, which asks for more than the request does, and is told
// in the answer.
func addSelectors(to *authorizer.AttributesRecord, r *authorizationv1.ResourceAttributes) {
	if s := r.FieldSelector; s != nil {
		if s.RawSelector != "" {
			parsed, err := fields.ParseSelector(s.RawSelector)
			if to.FieldSelectorParsingErr = err; err == nil {
				to.FieldSelectorRequirements = parsed.Requirements()
			}
		} else {
			to.FieldSelectorRequirements, to.FieldSelectorParsingErr = ofFields(s.Requirements)
		}
	}
	if s := r.LabelSelector; s != nil {
		if s.RawSelector != "" {
			parsed, err := labels.Parse(s.RawSelector)
			if to.LabelSelectorParsingErr = err; err == nil {
				to.LabelSelectorRequirements, _ = parsed.Requirements()
			}
		} else {
			to.LabelSelectorRequirements, to.LabelSelectorParsingErr = ofLabels(s.Requirements)
		}
	}
}

func ofFields(asked []metav1.FieldSelectorRequirement) (all fields.Requirements, err error) {
	for _, r := range asked {
		operator, known := map[metav1.FieldSelectorOperator]selection.Operator{
			metav1.FieldSelectorOpIn: selection.Equals, metav1.FieldSelectorOpNotIn: selection.NotEquals,
		}[r.Operator]
		if !known || len(r.Values) != 1 {
			err = errors.Join(err, fmt.Errorf("a field is compared with one value (In, NotIn): %q %s %q is left out", r.Key, r.Operator, r.Values))
			continue
		}
		all = append(all, fields.Requirement{Field: r.Key, Operator: operator, Value: r.Values[0]})
	}
	return all, err
}

func ofLabels(asked []metav1.LabelSelectorRequirement) (all labels.Requirements, err error) {
	operators := map[metav1.LabelSelectorOperator]selection.Operator{
		metav1.LabelSelectorOpIn: selection.In, metav1.LabelSelectorOpNotIn: selection.NotIn,
		metav1.LabelSelectorOpExists: selection.Exists, metav1.LabelSelectorOpDoesNotExist: selection.DoesNotExist,
	}
	for _, r := range asked {
		requirement, wrong := labels.NewRequirement(r.Key, operators[r.Operator], r.Values)
		if wrong != nil {
			err = errors.Join(err, wrong)
			continue
		}
		all = append(all, *requirement)
	}
	return all, err
}

// unread tells of the selectors of which something was left out.
func unread(a *authorizer.AttributesRecord) (told []string) {
	tell := func(name string, err error, kept int) {
		switch {
		case err == nil:
		case kept > 0:
			told = append(told, "spec.resourceAttributes."+name+" partially ignored due to parse error")
		default:
			told = append(told, "spec.resourceAttributes."+name+" ignored due to parse error")
		}
	}
	tell("fieldSelector", a.FieldSelectorParsingErr, len(a.FieldSelectorRequirements))
	tell("labelSelector", a.LabelSelectorParsingErr, len(a.LabelSelectorRequirements))
	return told
}
