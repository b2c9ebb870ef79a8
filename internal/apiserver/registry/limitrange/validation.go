package limitrange

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods"
	podvalidation "monopod.dev/monopod/internal/pods/validation"
)

// validate wants the defaults set.
func validate(l *corev1.LimitRange) (errs field.ErrorList) {
	seen := map[corev1.LimitType]bool{}
	for i := range l.Spec.Limits {
		item, at := &l.Spec.Limits[i], field.NewPath("spec", "limits").Index(i)
		errs = append(errs, validateType(item.Type, at.Child("type"))...)
		if seen[item.Type] {
			errs = append(errs, field.Duplicate(at.Child("type"), item.Type))
		}
		seen[item.Type] = true
		errs = append(errs, validateItem(item, at)...)
	}
	return errs
}

func validateType(t corev1.LimitType, at *field.Path) (errs field.ErrorList) {
	for _, msg := range validation.IsQualifiedName(string(t)) {
		errs = append(errs, field.Invalid(at, t, msg))
	}
	standard := []corev1.LimitType{corev1.LimitTypePod, corev1.LimitTypeContainer, corev1.LimitTypePersistentVolumeClaim}
	if len(errs) == 0 && !strings.Contains(string(t), "/") && !slices.Contains(standard, t) {
		errs = append(errs, field.Invalid(at, t, fmt.Sprintf("must be one of %v, or qualified by a domain", standard)))
	}
	return errs
}

// validateItem is about what one kind of things may ask for.
func validateItem(item *corev1.LimitRangeItem, at *field.Path) (errs field.ErrorList) {
	names := map[corev1.ResourceName]bool{}
	for _, l := range []struct {
		field string
		list  corev1.ResourceList
	}{{"max", item.Max}, {"min", item.Min}, {"default", item.Default}, {"defaultRequest", item.DefaultRequest}, {"maxLimitRequestRatio", item.MaxLimitRequestRatio}} {
		if strings.HasPrefix(l.field, "default") && item.Type == corev1.LimitTypePod {
			if len(l.list) > 0 {
				errs = append(errs, field.Forbidden(at.Child(l.field), "may not be specified when `type` is 'Pod'"))
			}
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(l.list)) {
			names[name] = true
			errs = append(errs, validateName(item.Type, name, at.Child(l.field).Key(string(name)))...)
		}
	}
	if item.Type == corev1.LimitTypePersistentVolumeClaim && !names[corev1.ResourceStorage] {
		errs = append(errs, field.Required(at.Child("limits"), "either minimum or maximum storage value is required, but neither was provided"))
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		errs = append(errs, validateOrder(item, name, at)...)
		errs = append(errs, validateRatio(item, name, at.Child("maxLimitRequestRatio").Key(string(name)))...)
	}
	return errs
}

func validateName(t corev1.LimitType, name corev1.ResourceName, at *field.Path) (errs field.ErrorList) {
	if t == corev1.LimitTypePod || t == corev1.LimitTypeContainer {
		return podvalidation.ContainerResourceName(name, at)
	}
	for _, msg := range validation.IsQualifiedName(string(name)) {
		errs = append(errs, field.Invalid(at, name, msg))
	}
	return errs
}

// validateOrder wants minimum, default request, default limit and maximum of a resource in this order, as far as they are given.
func validateOrder(item *corev1.LimitRangeItem, name corev1.ResourceName, at *field.Path) (errs field.ErrorList) {
	type bound struct {
		field, word string
		list        corev1.ResourceList
	}
	bounds := []bound{
		{"min", "min value", item.Min}, {"defaultRequest", "default request value", item.DefaultRequest},
		{"default", "default value", item.Default}, {"max", "max value", item.Max},
	}
	for i, low := range bounds {
		for _, high := range bounds[i+1:] {
			l, lok := low.list[name]
			h, hok := high.list[name]
			if !lok || !hok || l.Cmp(h) <= 0 {
				continue
			}
			// The remedy is in the default, where one of the two is one.
			wrong, value := low, l
			if low.field == "min" && high.field != "max" {
				wrong, value = high, h
			}
			errs = append(errs, field.Invalid(at.Child(wrong.field).Key(string(name)), value.String(),
				fmt.Sprintf("%s %s is greater than %s %s", low.word, l.String(), high.word, h.String())))
		}
	}
	limit, limited := item.Default[name]
	request, requested := item.DefaultRequest[name]
	if limited && requested && !pods.CanBeOvercommitted(name) && limit.Cmp(request) != 0 {
		errs = append(errs, field.Invalid(at.Child("defaultRequest").Key(string(name)), request.String(),
			fmt.Sprintf("default value %s must equal to defaultRequest value %s in %s", limit.String(), request.String(), name)))
	}
	return errs
}

// validateRatio wants of a limit's ratio to its request that some pair between minimum and maximum has it.
func validateRatio(item *corev1.LimitRangeItem, name corev1.ResourceName, at *field.Path) (errs field.ErrorList) {
	ratio, ok := item.MaxLimitRequestRatio[name]
	if !ok {
		return nil
	}
	if ratio.Cmp(*resource.NewQuantity(1, resource.DecimalSI)) < 0 {
		errs = append(errs, field.Invalid(at, ratio.String(), fmt.Sprintf("ratio %s is less than 1", ratio.String())))
	}
	low, lok := item.Min[name]
	high, hok := item.Max[name]
	if !lok || !hok || low.IsZero() {
		return errs
	}
	if highest := high.AsApproximateFloat64() / low.AsApproximateFloat64(); ratio.AsApproximateFloat64() > highest {
		errs = append(errs, field.Invalid(at, ratio.String(), fmt.Sprintf("ratio %s is greater than max/min = %f", ratio.String(), highest)))
	}
	return errs
}
