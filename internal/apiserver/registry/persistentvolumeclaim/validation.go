package persistentvolumeclaim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/diff"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods/validation"
)

func validate(c *claim) field.ErrorList { return validation.ClaimSpec(&c.Spec, field.NewPath("spec")) }

// validateUpdate: what was asked for stays, so that nobody gets round quotas and limits. The volume is given once; a bound claim may ask for more, and for other
// attributes; one that named no class may get one.
func validateUpdate(c, old *claim) field.ErrorList {
	errs := validate(c)
	spec := field.NewPath("spec")
	is, was := c.DeepCopy(), old.DeepCopy()
	if was.Spec.VolumeName == "" {
		was.Spec.VolumeName = is.Spec.VolumeName
	}
	sameSource(&was.Spec, true)
	errs = append(errs, keptClass(is, was)...)
	if c.Status.Phase == corev1.ClaimBound {
		if is.Spec.Resources.Requests != nil {
			is.Spec.Resources.Requests[corev1.ResourceStorage] = old.Spec.Resources.Requests[corev1.ResourceStorage]
		}
		is.Spec.VolumeAttributesClassName = was.Spec.VolumeAttributesClassName
	}
	if !apiequality.Semantic.DeepEqual(is.Spec, was.Spec) {
		errs = append(errs, field.Forbidden(spec, fmt.Sprintf(
			"spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n%v", diff.Diff(was.Spec, is.Spec))))
	}
	// A claim that cannot grow may ask for less again, but not for less than there is.
	size, before, has := c.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage], old.Status.Capacity[corev1.ResourceStorage]
	if size.Cmp(before) < 0 && size.Cmp(has) <= 0 {
		errs = append(errs, field.Forbidden(spec.Child("resources", "requests", "storage"), "field can not be less than status.capacity"))
	}
	errs = append(errs, apivalidation.ValidateImmutableField(c.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
	if now := c.Spec.VolumeAttributesClassName; old.Status.CurrentVolumeAttributesClassName != nil && !apiequality.Semantic.DeepEqual(now, old.Spec.VolumeAttributesClassName) {
		at := spec.Child("volumeAttributesClassName")
		switch {
		case now == nil:
			errs = append(errs, field.Forbidden(at, "update to nil is forbidden when status.currentVolumeAttributesClassName is not nil"))
		case *now == "":
			errs = append(errs, field.Forbidden(at, "update to empty string is forbidden when status.currentVolumeAttributesClassName is not nil"))
		}
	}
	return errs
}

// keptClass takes a class that may be added out of is, a copy of the claim: that of the annotation that was, or any where there was none.
func keptClass(is, was *claim) field.ErrorList {
	said, annotated := was.Annotations[corev1.BetaStorageClassAnnotation]
	says, still := is.Annotations[corev1.BetaStorageClassAnnotation]
	added := was.Spec.StorageClassName == nil && is.Spec.StorageClassName != nil
	fits := added && (!annotated || *is.Spec.StorageClassName == said)
	if fits {
		is.Spec.StorageClassName = nil
	}
	if said == says || fits && annotated && !still {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata").Child("annotations", corev1.BetaStorageClassAnnotation), says, "field is immutable")}
}

func validateStatus(c, _ *claim) (errs field.ErrorList) {
	if c.ResourceVersion == "" {
		errs = append(errs, field.Required(field.NewPath("resourceVersion"), ""))
	}
	at := field.NewPath("status")
	errs = append(errs, amounts(c.Status.Capacity, at.Child("capacity"))...)
	known := []corev1.ClaimResourceStatus{
		corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible, corev1.PersistentVolumeClaimNodeResizePending,
		corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizeInfeasible,
	}
	slices.Sort(known)
	for _, name := range slices.Sorted(maps.Keys(c.Status.AllocatedResourceStatuses)) {
		at := at.Child("allocatedResourceStatuses")
		errs = append(errs, resourceName(name, at)...)
		if !slices.Contains(known, c.Status.AllocatedResourceStatuses[name]) {
			errs = append(errs, field.NotSupported(at, name, known))
		}
	}
	allocated := at.Child("allocatedResources")
	for _, name := range slices.Sorted(maps.Keys(c.Status.AllocatedResources)) {
		if wrong := resourceName(name, allocated); len(wrong) > 0 {
			errs = append(errs, wrong...)
			continue
		}
		one := corev1.ResourceList{name: c.Status.AllocatedResources[name]}
		if wrong := amounts(one, allocated); len(wrong) > 0 {
			errs = append(errs, wrong...)
		} else if q := one[name]; q.MilliValue()%1000 != 0 {
			errs = append(errs, field.Invalid(allocated.Key(string(name)), q, "must be an integer"))
		}
	}
	return errs
}

func amounts(list corev1.ResourceList, at *field.Path) (errs field.ErrorList) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if q := list[name]; q.Value() < 0 {
			errs = append(errs, field.Invalid(at.Key(string(name)), q.Value(), "must be a valid resource quantity"))
		}
	}
	return errs
}

// resourceName is what a claim may have beside storage: resources of somebody else's.
func resourceName(name corev1.ResourceName, at *field.Path) (errs field.ErrorList) {
	for _, msg := range utilvalidation.IsQualifiedName(string(name)) {
		errs = append(errs, field.Invalid(at, name, msg))
	}
	native := !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
	if len(errs) == 0 && native && name != corev1.ResourceStorage {
		errs = append(errs, field.NotSupported(at, name, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	return errs
}
