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
	"monopod.dev/monopod/internal/pods/allocated"
)

// maxExtendedName is the longest name of an extended resource: quotas write it behind "requests.".
const maxExtendedName = validation.DNS1123SubdomainMaxLength + 1 + 63 - len("requests.")

// validateResources checks requests against limits, of names that the check takes. The defaults (a request that is left out equals the limit) are
// set by then.
func validateResources(r *corev1.ResourceRequirements, named func(corev1.ResourceName, *field.Path) field.ErrorList, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	limits, requests := at.Child("limits"), at.Child("requests")
	for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
		at := limits.Key(string(name))
		errs = append(append(errs, named(name, at)...), validateQuantity(name, r.Limits[name], at)...)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request, at := r.Requests[name], requests.Key(string(name))
		errs = append(append(errs, named(name, at)...), validateQuantity(name, request, at)...)
		limit, limited := r.Limits[name]
		switch {
		case !pods.CanBeOvercommitted(name) && !limited:
			errs = append(errs, field.Required(limits.Key(string(name)), "Limit must be set for non overcommitted resources"))
		case !pods.CanBeOvercommitted(name) && request.Cmp(limit) != 0:
			errs = append(errs, field.Invalid(requests, request.String(),
				fmt.Sprintf("must be equal to %s limit of %s", name, limit.String())))
		case limited && request.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(requests, request.String(),
				fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		}
	}
	if has(r, pods.IsHugepages) && !has(r, func(name corev1.ResourceName) bool {
		return name == corev1.ResourceCPU || name == corev1.ResourceMemory
	}) {
		errs = append(errs, field.Forbidden(at, "HugePages require cpu or memory"))
	}
	return errs
}

// has says that a resource is requested, or limited, whose name is one of those.
func has(r *corev1.ResourceRequirements, those func(corev1.ResourceName) bool) bool {
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		for name := range list {
			if those(name) {
				return true
			}
		}
	}
	return false
}

// validatePodResources is about what a pod has as a whole, and what its containers have of that.
func validatePodResources(spec *corev1.PodSpec, at *field.Path) field.ErrorList {
	if spec.Resources == nil {
		return nil
	}
	errs := validateResources(spec.Resources, podResourceName, at)
	requests, limits := spec.Resources.Requests, spec.Resources.Limits
	of := allocated.Of(&corev1.Pod{Spec: *spec})
	sum := of.ContainerRequests()
	for _, name := range slices.Sorted(maps.Keys(sum)) {
		want := sum[name]
		if own, ok := requests[name]; ok && want.Cmp(own) > 0 {
			errs = append(errs, field.Invalid(at.Child("requests").Key(string(name)), own.String(), "must be greater than or equal to aggregate container requests of "+want.String()))
		}
	}
	sum = of.ContainerLimits()
	for _, name := range slices.Sorted(maps.Keys(sum)) {
		want := sum[name]
		if own, ok := limits[name]; ok && pods.IsHugepages(name) && want.Cmp(own) > 0 {
			errs = append(errs, field.Invalid(at.Child("limits").Key(string(name)), own.String(), "must be greater than or equal to aggregate container limits of "+want.String()))
		}
	}
	for i := range spec.Containers {
		list := spec.Containers[i].Resources.Limits
		for _, name := range slices.Sorted(maps.Keys(list)) {
			limit := list[name]
			if own, ok := limits[name]; ok && limit.Cmp(own) > 0 {
				errs = append(errs, field.Invalid(at.Child("containers").Index(i).Key(string(name)).Child("limits"), limit.String(), "must be less than or equal to pod limits of "+own.String()))
			}
		}
	}
	return errs
}

func podResourceName(name corev1.ResourceName, at *field.Path) field.ErrorList {
	errs := invalidIf(true, string(name), at, validation.IsQualifiedName)
	if len(errs) == 0 && !allocated.OfPods(name) {
		errs = append(errs, field.NotSupported(at, name, []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceHugePagesPrefix, corev1.ResourceMemory}))
	}
	return errs
}

func validateQuantity(name corev1.ResourceName, q resource.Quantity, at *field.Path) (errs field.ErrorList) {
	if q.Sign() < 0 {
		errs = append(errs, field.Invalid(at, q.String(), "must be greater than or equal to 0"))
	}
	if pods.IsExtended(name) && q.MilliValue()%1000 != 0 {
		errs = append(errs, field.Invalid(at, q.String(), "must be an integer"))
	}
	if pods.IsHugepages(name) && !divides(name, q) {
		errs = append(errs, field.Invalid(at, q.String(), fmt.Sprintf("%s is not positive integer multiple of %s", q.String(), name)))
	}
	return errs
}

// divides says that an amount is some pages, or none, of the size that the name of the resource says.
func divides(name corev1.ResourceName, q resource.Quantity) bool {
	size, err := resource.ParseQuantity(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
	return err == nil && size.Sign() > 0 && size.MilliValue()%1000 == 0 && q.Value()%size.Value() == 0
}

// validateResizePolicy is about what a change of the resources would do to the container.
func validateResizePolicy(policies []corev1.ContainerResizePolicy, restart corev1.RestartPolicy, at *field.Path) (errs field.ErrorList) {
	seen := map[corev1.ResourceName]bool{}
	for i, p := range policies {
		if seen[p.ResourceName] {
			errs = append(errs, field.Duplicate(at.Index(i), p.ResourceName))
		}
		seen[p.ResourceName] = true
		errs = append(errs, oneOf(p.ResourceName, at, corev1.ResourceCPU, corev1.ResourceMemory)...)
		errs = append(errs, oneOf(p.RestartPolicy, at, corev1.NotRequired, corev1.RestartContainer)...)
		if restart == corev1.RestartPolicyNever && p.RestartPolicy != corev1.NotRequired {
			errs = append(errs, field.Invalid(at, p.RestartPolicy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'"))
		}
	}
	return errs
}

// ContainerResourceName tells what is wrong with the name of a resource that a container asks for.
func ContainerResourceName(name corev1.ResourceName, at *field.Path) field.ErrorList {
	errs := invalidIf(true, string(name), at, validation.IsQualifiedName)
	switch {
	case len(errs) > 0:
		return errs
	case pods.IsExtended(name):
		if len(name) > maxExtendedName {
			errs = append(errs, field.TooLong(at, string(name), maxExtendedName))
		}
		return errs
	case pods.IsHugepages(name), slices.Contains(computeResources(), name):
		return nil
	default:
		return field.ErrorList{field.Invalid(at, string(name), fmt.Sprintf(
			"must be one of %v, huge pages (hugepages-2Mi), or an extended resource named by a domain (example.com/widget)", computeResources()))}
	}
}

func computeResources() []corev1.ResourceName {
	return []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
}
