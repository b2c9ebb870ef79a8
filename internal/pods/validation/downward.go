package validation

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// How long a token of a service account is good for, in seconds: the API's bounds.
const (
	minTokenSeconds = 10 * 60
	maxTokenSeconds = 1 << 32
)

// volumeFieldPaths returns the fields of a pod that a file may show. Beside them are the single labels and annotations.
func volumeFieldPaths() []string {
	return []string{"metadata.name", "metadata.namespace", "metadata.labels", "metadata.annotations", "metadata.uid"}
}

// divisors returns in what units the downward API counts a resource.
func divisors(name corev1.ResourceName) []string {
	if name == corev1.ResourceCPU {
		return []string{"1m", "1"}
	}
	return []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
}

// validateResourceFieldRef is about a reference to what a container requests, or is limited to.
func validateResourceFieldRef(ref *corev1.ResourceFieldSelector, at *field.Path) field.ErrorList {
	if ref.Resource == "" {
		return field.ErrorList{field.Required(at.Child("resource"), "")}
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	known := slices.Contains(computeResources(), corev1.ResourceName(name)) || strings.HasPrefix(name, corev1.ResourceHugePagesPrefix)
	if kind != "limits" && kind != "requests" || !known {
		var all []string
		for _, kind := range []string{"limits", "requests"} {
			for _, name := range computeResources() {
				all = append(all, kind+"."+string(name))
			}
		}
		return field.ErrorList{field.NotSupported(at.Child("resource"), ref.Resource, all)}
	}
	units := divisors(corev1.ResourceName(name))
	good := ref.Divisor.IsZero() || slices.ContainsFunc(units, func(u string) bool { return ref.Divisor.Cmp(resource.MustParse(u)) == 0 })
	if !good {
		return field.ErrorList{field.Invalid(at.Child("divisor"), ref.Divisor.String(),
			fmt.Sprintf("must be one of %s for %s", strings.Join(units, ", "), name))}
	}
	return nil
}

// validateDownwardFiles is about the files of a downwardAPI volume.
func validateDownwardFiles(items []corev1.DownwardAPIVolumeFile, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range items {
		item, at := &items[i], at.Index(i)
		errs = append(errs, validateFilePath(item.Path, at.Child("path"))...)
		errs = append(errs, validateMode(item.Mode, at.Child("mode"))...)
		errs = append(errs, validateUser(item.User, at.Child("user"))...)
		switch ref := item.ResourceFieldRef; {
		case item.FieldRef != nil && ref != nil:
			errs = append(errs, field.Invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"))
		case item.FieldRef != nil:
			errs = append(errs, validateFieldRef(item.FieldRef, volumeFieldPaths(), at.Child("fieldRef"))...)
		case ref == nil:
			errs = append(errs, field.Required(at, "one of fieldRef and resourceFieldRef is required"))
		case ref.ContainerName == "":
			errs = append(errs, field.Required(at.Child("resourceFieldRef", "containerName"), "a file is no container's: say whose resource it shows"))
		default:
			errs = append(errs, validateResourceFieldRef(ref, at.Child("resourceFieldRef"))...)
		}
	}
	return errs
}

func validateHostAliases(aliases []corev1.HostAlias, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, a := range aliases {
		errs = append(errs, invalidIf(true, a.IP, at.Index(i).Child("ip"), isIP)...)
		for j, name := range a.Hostnames {
			errs = append(errs, invalidIf(true, name, at.Index(i).Child("hostnames").Index(j), validation.IsDNS1123Subdomain)...)
		}
	}
	return errs
}
