package validation

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
)

// maxExtendedName is the longest name of an extended resource: quotas write it behind "requests.".
const maxExtendedName = validation.DNS1123SubdomainMaxLength + 1 + 63 - len("requests.")

// validateResources checks requests against limits. The defaults (a request that is left out equals the limit) are
// set by then.
func validateResources(r *corev1.ResourceRequirements, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	limits, requests := at.Child("limits"), at.Child("requests")
	for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
		errs = append(errs, validateQuantity(name, r.Limits[name], limits.Key(string(name)))...)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request := r.Requests[name]
		errs = append(errs, validateQuantity(name, request, requests.Key(string(name)))...)
		limit, limited := r.Limits[name]
		switch {
		case pods.IsExtended(name) && !limited:
			errs = append(errs, field.Required(limits.Key(string(name)),
				"an extended resource cannot be overcommitted, so its limit must be set"))
		case pods.IsExtended(name) && request.Cmp(limit) != 0:
			errs = append(errs, field.Invalid(requests, request.String(),
				fmt.Sprintf("must be equal to %s limit of %s", name, limit.String())))
		case limited && request.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(requests, request.String(),
				fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		}
	}
	return errs
}

func validateQuantity(name corev1.ResourceName, q resource.Quantity, at *field.Path) field.ErrorList {
	errs := validateResourceName(name, at)
	if q.Sign() < 0 {
		errs = append(errs, field.Invalid(at, q.String(), "must be greater than or equal to 0"))
	}
	if pods.IsExtended(name) && q.MilliValue()%1000 != 0 {
		errs = append(errs, field.Invalid(at, q.String(), "must be an integer"))
	}
	return errs
}

func validateResourceName(name corev1.ResourceName, at *field.Path) field.ErrorList {
	errs := invalidIf(true, string(name), at, validation.IsQualifiedName)
	switch {
	case len(errs) > 0:
		return errs
	case strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		return field.ErrorList{field.Forbidden(at, NotSupported)}
	case pods.IsExtended(name):
		if len(name) > maxExtendedName {
			errs = append(errs, field.TooLong(at, string(name), maxExtendedName))
		}
		return errs
	case slices.Contains(computeResources(), name):
		return nil
	default:
		return field.ErrorList{field.Invalid(at, string(name), fmt.Sprintf(
			"must be one of %v, or an extended resource named by a domain (example.com/widget)", computeResources()))}
	}
}

func computeResources() []corev1.ResourceName {
	return []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
}
