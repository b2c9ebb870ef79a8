package storageclass

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// maxParameters is how many parameters there may be, maxParameterBytes how many bytes they may have together.
	maxParameters     = 512
	maxParameterBytes = 256 << 10
)

func validate(c *storagev1.StorageClass) field.ErrorList {
	errs := Provisioner(c.Provisioner, field.NewPath("provisioner"))
	errs = append(errs, Parameters(c.Parameters, field.NewPath("parameters"))...)
	if p := c.ReclaimPolicy; p != nil && *p != "" {
		errs = append(errs, oneOf(*p, field.NewPath("reclaimPolicy"), corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain)...)
	}
	at := field.NewPath("volumeBindingMode")
	if m := c.VolumeBindingMode; m == nil {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, oneOf(*m, at, storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer)...)
	}
	return append(errs, topologies(c.AllowedTopologies, field.NewPath("allowedTopologies"))...)
}

// validateUpdate: what volumes were made by stays as it is.
func validateUpdate(c, old *storagev1.StorageClass) field.ErrorList {
	errs := validate(c)
	errs = append(errs, apivalidation.ValidateImmutableField(c.Parameters, old.Parameters, field.NewPath("parameters"))...)
	errs = append(errs, apivalidation.ValidateImmutableField(c.Provisioner, old.Provisioner, field.NewPath("provisioner"))...)
	errs = append(errs, apivalidation.ValidateImmutableField(c.ReclaimPolicy, old.ReclaimPolicy, field.NewPath("reclaimPolicy"))...)
	return append(errs, apivalidation.ValidateImmutableField(c.VolumeBindingMode, old.VolumeBindingMode, field.NewPath("volumeBindingMode"))...)
}

// Provisioner requires a name of who makes volumes.
func Provisioner(name string, at *field.Path) (errs field.ErrorList) {
	if name == "" {
		return field.ErrorList{field.Required(at, name)}
	}
	lower := strings.ToLower(name)
	for _, msg := range validation.IsQualifiedName(lower) {
		errs = append(errs, field.Invalid(at, lower, msg))
	}
	return errs
}

// Parameters are for the provisioner to understand. There must not be too many.
func Parameters(list map[string]string, at *field.Path) (errs field.ErrorList) {
	if len(list) > maxParameters {
		return field.ErrorList{field.TooLong(at, "", maxParameters)}
	}
	if _, nameless := list[""]; nameless {
		errs = append(errs, field.Invalid(at, "", "field can not be empty."))
	}
	size := 0
	for name, value := range list {
		size += len(name) + len(value)
	}
	if size > maxParameterBytes {
		errs = append(errs, field.TooLong(at, "", maxParameterBytes))
	}
	return errs
}

// topologies are where volumes may be made. None says what another one says, or nothing.
func topologies(list []corev1.TopologySelectorTerm, at *field.Path) (errs field.ErrorList) {
	seen := []map[string]sets.Set[string]{{}}
	for i, term := range list {
		at, said := at.Index(i).Child("matchLabelExpressions"), map[string]sets.Set[string]{}
		for j, e := range term.MatchLabelExpressions {
			at, values := at.Index(j), sets.New[string]()
			if len(e.Values) == 0 {
				errs = append(errs, field.Required(at.Child("values"), ""))
			}
			for k, value := range e.Values {
				if values.Has(value) {
					errs = append(errs, field.Duplicate(at.Child("values").Index(k), value))
				}
				values.Insert(value)
			}
			errs = append(errs, metavalidation.ValidateLabelName(e.Key, at.Child("key"))...)
			if said[e.Key] != nil {
				errs = append(errs, field.Duplicate(at.Child("key"), e.Key))
			}
			said[e.Key] = values
		}
		if slices.ContainsFunc(seen, func(o map[string]sets.Set[string]) bool { return apiequality.Semantic.DeepEqual(o, said) }) {
			errs = append(errs, field.Duplicate(at, ""))
		}
		seen = append(seen, said)
	}
	return errs
}

func oneOf[S ~string](value S, at *field.Path, known ...S) field.ErrorList {
	if slices.Contains(known, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, value, known)}
}
