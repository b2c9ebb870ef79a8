package priorityclass

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// HighestUserValue is the highest priority that is not the system's own.
const HighestUserValue = 1_000_000_000

// systemPrefix begins the names of the system's classes.
const systemPrefix = "system-"

func validate(c *schedulingv1.PriorityClass) (errs field.ErrorList) {
	switch {
	case strings.HasPrefix(c.Name, systemPrefix):
		if !isSystem(c) {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"),
				fmt.Sprintf("priority class names with '%s' prefix are reserved for system use only", systemPrefix)))
		}
	case c.Value > HighestUserValue:
		errs = append(errs, field.Forbidden(field.NewPath("value"), fmt.Sprintf("maximum allowed value of a user defined priority is %d", HighestUserValue)))
	}
	at := field.NewPath("preemptionPolicy")
	switch p := c.PreemptionPolicy; {
	case p == nil:
	case *p == "":
		errs = append(errs, field.Required(at, ""))
	case *p != corev1.PreemptLowerPriority && *p != corev1.PreemptNever:
		errs = append(errs, field.NotSupported(at, *p, []corev1.PreemptionPolicy{corev1.PreemptLowerPriority, corev1.PreemptNever}))
	}
	return errs
}

// isSystem: it is one of the system's, as that is made.
func isSystem(c *schedulingv1.PriorityClass) bool {
	return slices.ContainsFunc(System(), func(s *schedulingv1.PriorityClass) bool {
		return s.Name == c.Name && s.Value == c.Value && !c.GlobalDefault
	})
}

// validateUpdate: pods that were made of a class say what it was, so that these fields stay.
func validateUpdate(c, old *schedulingv1.PriorityClass) (errs field.ErrorList) {
	if c.Value != old.Value {
		errs = append(errs, field.Forbidden(field.NewPath("value"), "may not be changed in an update."))
	}
	errs = append(errs, apivalidation.ValidateImmutableField(c.PreemptionPolicy, old.PreemptionPolicy, field.NewPath("preemptionPolicy"))...)
	return append(errs, validate(c)...)
}
