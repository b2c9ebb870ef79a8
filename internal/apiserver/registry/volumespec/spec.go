// Package volumespec says what is wrong with the specification of a volume: that of a PersistentVolume, and the inline one of a VolumeAttachment.
package volumespec

import (
	"maps"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods/validation"
)

// Spec checks that of the PersistentVolume of the given name.
func Spec(s *corev1.PersistentVolumeSpec, name string, at *field.Path) (errs field.ErrorList) {
	errs = append(errs, required(len(s.AccessModes) > 0, at.Child("accessModes"))...)
	errs = append(errs, validation.AccessModes(s.AccessModes, at.Child("accessModes"))...)
	errs = append(errs, capacity(s.Capacity, at.Child("capacity"))...)
	policy := at.Child("persistentVolumeReclaimPolicy")
	if s.PersistentVolumeReclaimPolicy != "" {
		errs = append(errs, oneOf(s.PersistentVolumeReclaimPolicy, policy,
			corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain)...)
	}
	if s.NodeAffinity != nil {
		errs = append(errs, nodeAffinity(s.NodeAffinity, at.Child("nodeAffinity"))...)
	}
	errs = append(errs, source(s, name, at)...)
	if s.Local != nil && s.NodeAffinity == nil {
		errs = append(errs, field.Required(at.Child("nodeAffinity"), "Local volume requires node affinity"))
	}
	if s.HostPath != nil && path.Clean(s.HostPath.Path) == "/" && s.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		errs = append(errs, field.Forbidden(policy, "may not be 'recycle' for a hostPath mount of '/'"))
	}
	if s.StorageClassName != "" {
		errs = append(errs, ClassName(s.StorageClassName, at.Child("storageClassName"))...)
	}
	errs = append(errs, validation.VolumeMode(s.VolumeMode, at.Child("volumeMode"))...)
	return append(errs, attributesClass(s, at)...)
}

// Inline checks the one that stands in a VolumeAttachment: it says which volume of a CSI driver is meant, and nothing of a claim or a class.
func Inline(s *corev1.PersistentVolumeSpec, at *field.Path) (errs field.ErrorList) {
	const strange = "may not be specified in the context of inline volumes"
	for _, one := range []struct {
		name string
		is   bool
	}{
		{"claimRef", s.ClaimRef != nil}, {"capacity", len(s.Capacity) > 0}, {"nodeAffinity", s.NodeAffinity != nil}, {"storageClassName", s.StorageClassName != ""},
	} {
		if one.is {
			errs = append(errs, field.Forbidden(at.Child(one.name), strange))
		}
	}
	if s.CSI == nil {
		errs = append(errs, field.Required(at.Child("csi"), "has to be specified in the context of inline volumes"))
	}
	errs = append(errs, required(len(s.AccessModes) > 0, at.Child("accessModes"))...)
	errs = append(errs, validation.AccessModes(s.AccessModes, at.Child("accessModes"))...)
	if p := s.PersistentVolumeReclaimPolicy; p != "" && p != corev1.PersistentVolumeReclaimRetain {
		errs = append(errs, field.Forbidden(at.Child("persistentVolumeReclaimPolicy"), "may only be Retain in the context of inline volumes"))
	}
	errs = append(errs, source(s, "", at)...)
	if s.VolumeMode != nil && *s.VolumeMode != corev1.PersistentVolumeFilesystem {
		errs = append(errs, field.Forbidden(at.Child("volumeMode"), "may not specify volumeMode other than Filesystem in the context of inline volumes"))
	}
	return errs
}

// ClassName must be one that a StorageClass, or a VolumeAttributesClass, can have.
func ClassName(name string, at *field.Path) (errs field.ErrorList) {
	for _, msg := range apivalidation.NameIsDNSSubdomain(name, false) {
		errs = append(errs, field.Invalid(at, name, msg))
	}
	return errs
}

// capacity is that of the storage, and of nothing else.
func capacity(list corev1.ResourceList, at *field.Path) (errs field.ErrorList) {
	errs = append(errs, required(len(list) > 0, at)...)
	if _, ok := list[corev1.ResourceStorage]; !ok || len(list) > 1 {
		errs = append(errs, field.NotSupported(at, list, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		quantity, at := list[name], at.Key(string(name))
		if quantity.Value() < 0 {
			errs = append(errs, field.Invalid(at, quantity.Value(), "must be a valid resource quantity"))
		}
		if quantity.Sign() <= 0 {
			errs = append(errs, field.Invalid(at, quantity.String(), "must be greater than zero"))
		}
	}
	return errs
}

func nodeAffinity(a *corev1.VolumeNodeAffinity, at *field.Path) field.ErrorList {
	if a.Required == nil {
		return field.ErrorList{field.Required(at.Child("required"), "must specify required node constraints")}
	}
	return validation.NodeSelector(a.Required, at.Child("required"))
}

// attributesClass is for volumes of CSI drivers, which know what its attributes mean.
func attributesClass(s *corev1.PersistentVolumeSpec, at *field.Path) (errs field.ErrorList) {
	name, where := s.VolumeAttributesClassName, at.Child("volumeAttributesClassName")
	switch {
	case name == nil:
		return nil
	case *name == "":
		errs = append(errs, field.Required(where, "an empty string is disallowed"))
	default:
		errs = append(errs, ClassName(*name, where)...)
	}
	if s.CSI == nil {
		errs = append(errs, field.Required(at.Child("csi"), "has to be specified when using volumeAttributesClassName"))
	}
	return errs
}

func required(ok bool, at *field.Path) field.ErrorList {
	if ok {
		return nil
	}
	return field.ErrorList{field.Required(at, "")}
}

func oneOf[S ~string](value S, at *field.Path, known ...S) field.ErrorList {
	if slices.Contains(known, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, value, known)}
}
