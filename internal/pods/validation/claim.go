package validation

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// AccessModes tells what is wrong with how a volume is to be mounted, or a claim's may be: modes must be known, and who wants a volume for one pod wants nothing else.
func AccessModes(modes []corev1.PersistentVolumeAccessMode, at *field.Path) (errs field.ErrorList) {
	known := []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod}
	for _, mode := range modes {
		errs = append(errs, among(mode, at, known...)...)
	}
	if slices.Contains(modes, corev1.ReadWriteOncePod) && slices.ContainsFunc(modes, func(m corev1.PersistentVolumeAccessMode) bool {
		return m != corev1.ReadWriteOncePod && slices.Contains(known, m)
	}) {
		errs = append(errs, field.Forbidden(at, "may not use ReadWriteOncePod with other access modes"))
	}
	return errs
}

// VolumeMode tells what is wrong with the mode of a volume, or of a claim, where there is one.
func VolumeMode(mode *corev1.PersistentVolumeMode, at *field.Path) field.ErrorList {
	if mode == nil {
		return nil
	}
	return among(*mode, at, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
}

// claimKind and snapshotKind are the kinds of objects that the field dataSource may name; dataSourceRef names those of others, too (KEP-1495).
const (
	claimKind     = "PersistentVolumeClaim"
	snapshotKind  = "VolumeSnapshot"
	snapshotGroup = "snapshot.storage.k8s.io"
)

// ClaimSpec tells what is wrong with the specification of a claim, wherever it stands: in a claim, in a pod that brings it along, in a template.
func ClaimSpec(s *corev1.PersistentVolumeClaimSpec, at *field.Path) (errs field.ErrorList) {
	if len(s.AccessModes) == 0 {
		errs = append(errs, field.Required(at.Child("accessModes"), "at least 1 access mode is required"))
	}
	errs = append(errs, AccessModes(s.AccessModes, at.Child("accessModes"))...)
	if s.Selector != nil {
		errs = append(errs, validateSelector(s.Selector, at.Child("selector"))...)
	}
	errs = append(errs, validateSize(s.Resources.Requests, at.Child("resources").Key(string(corev1.ResourceStorage)))...)
	for _, one := range []struct {
		name  string
		class *string
	}{{"storageClassName", s.StorageClassName}, {"volumeAttributesClassName", s.VolumeAttributesClassName}} {
		if one.class != nil {
			errs = append(errs, invalidIf(*one.class != "", *one.class, at.Child(one.name), validation.IsDNS1123Subdomain)...)
		}
	}
	errs = append(errs, VolumeMode(s.VolumeMode, at.Child("volumeMode"))...)
	return append(errs, validateSources(s, at)...)
}

// validateSize is about how much storage a claim wants. A part of a byte, which 0.1Gi has, is warned of, and no more.
func validateSize(requests corev1.ResourceList, at *field.Path) field.ErrorList {
	size, ok := requests[corev1.ResourceStorage]
	switch {
	case !ok:
		return field.ErrorList{field.Required(at, "")}
	case size.Sign() <= 0:
		return field.ErrorList{field.Invalid(at, size.String(), "must be greater than zero")}
	}
	return nil
}

// validateSources is about what a volume is to be filled with.
func validateSources(s *corev1.PersistentVolumeClaimSpec, at *field.Path) (errs field.ErrorList) {
	from, ref := s.DataSource, s.DataSourceRef
	if from != nil {
		errs = append(errs, validateDataSource(from.APIGroup, from.Kind, from.Name, at.Child("dataSource"))...)
	}
	if ref == nil {
		// A Kubernetes API server drops it, for the sake of old clients. The volume would be empty, and nobody told.
		if from != nil && from.APIGroup != nil && *from.APIGroup != "" && !InDataSource(from.APIGroup, from.Kind) {
			errs = append(errs, field.Forbidden(at.Child("dataSource"), "must be a PersistentVolumeClaim or a VolumeSnapshot; use `dataSourceRef` for objects of other kinds"))
		}
		return errs
	}
	where := at.Child("dataSourceRef")
	errs = append(errs, validateDataSource(ref.APIGroup, ref.Kind, ref.Name, where)...)
	foreign := ref.Namespace != nil && *ref.Namespace != ""
	if foreign {
		errs = append(errs, invalidIf(true, *ref.Namespace, where.Child("namespace"), validation.IsDNS1123Label)...)
	}
	switch {
	case from == nil:
	case foreign:
		errs = append(errs, field.Invalid(at, at.Child("dataSource"), "may not be specified when dataSourceRef.namespace is specified"))
	case !reflect.DeepEqual(from.APIGroup, ref.APIGroup) || from.Kind != ref.Kind || from.Name != ref.Name:
		errs = append(errs, field.Invalid(at, at.Child("dataSource"), "must match dataSourceRef"))
	}
	return errs
}

// InDataSource reports whether the field dataSource may name objects of a kind by itself.
func InDataSource(group *string, kind string) bool {
	if group == nil || *group == "" {
		return kind == claimKind
	}
	return kind == snapshotKind && *group == snapshotGroup
}

func validateDataSource(group *string, kind, name string, at *field.Path) (errs field.ErrorList) {
	if name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	if kind == "" {
		errs = append(errs, field.Required(at.Child("kind"), ""))
	}
	if group == nil || *group == "" {
		if kind != claimKind {
			errs = append(errs, field.Invalid(at, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup"))
		}
		return errs
	}
	return append(errs, invalidIf(true, *group, at.Child("apiGroup"), validation.IsDNS1123Subdomain)...)
}
