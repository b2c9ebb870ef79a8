package configmap

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxSize bounds the sum of the values, in bytes: etcd takes requests of up to 1.5 MiB.
const maxSize = 1 << 20

func validate(c *corev1.ConfigMap) (errs field.ErrorList) {
	data, binary := field.NewPath("data"), field.NewPath("binaryData")
	size := 0
	for _, key := range slices.Sorted(maps.Keys(c.Data)) {
		errs = append(errs, validateKey(data, key)...)
		if _, twice := c.BinaryData[key]; twice {
			errs = append(errs, field.Invalid(data.Key(key), key, "must not be a key of `binaryData` too"))
		}
		size += len(c.Data[key])
	}
	for _, key := range slices.Sorted(maps.Keys(c.BinaryData)) {
		errs = append(errs, validateKey(binary, key)...)
		size += len(c.BinaryData[key])
	}
	if size > maxSize {
		errs = append(errs, field.TooLong(field.NewPath(""), "", maxSize))
	}
	return errs
}

func validateKey(path *field.Path, key string) (errs field.ErrorList) {
	for _, msg := range validation.IsConfigMapKey(key) {
		errs = append(errs, field.Invalid(path.Key(key), key, msg))
	}
	return errs
}

func validateUpdate(c, old *corev1.ConfigMap) (errs field.ErrorList) {
	if old.Immutable != nil && *old.Immutable {
		const why = "may not be changed when `immutable` is set: delete the ConfigMap and create it anew"
		if c.Immutable == nil || !*c.Immutable {
			errs = append(errs, field.Forbidden(field.NewPath("immutable"), why))
		}
		if !apiequality.Semantic.DeepEqual(c.Data, old.Data) {
			errs = append(errs, field.Forbidden(field.NewPath("data"), why))
		}
		if !apiequality.Semantic.DeepEqual(c.BinaryData, old.BinaryData) {
			errs = append(errs, field.Forbidden(field.NewPath("binaryData"), why))
		}
	}
	return append(errs, validate(c)...)
}
