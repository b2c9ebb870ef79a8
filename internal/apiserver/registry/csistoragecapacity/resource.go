// Package csistoragecapacity serves the resource csistoragecapacities of storage.k8s.io/v1: how much room a CSI driver has for volumes of a class, in a part of
// the cluster.
package csistoragecapacity

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/apiserver/registry/node"
	"monopod.dev/monopod/internal/apiserver/registry/volumespec"
	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

type capacity = storagev1.CSIStorageCapacity

// Resource is the resource csistoragecapacities.
func Resource() resource.Of[*capacity, *storagev1.CSIStorageCapacityList] {
	doc := capacity{}.SwaggerDoc()
	return resource.Of[*capacity, *storagev1.CSIStorageCapacityList]{
		Group:       storagev1.GroupName,
		Plural:      "csistoragecapacities",
		Namespaced:  true,
		Honours:     apifields.Table{reflect.TypeFor[capacity](): apifields.All("NodeTopology", "StorageClassName", "Capacity", "MaximumVolumeSize")},
		NamedUpdate: true,
		Create:      validate,
		Update:      validateUpdate,
		Warn:        warnings,
		WarnUpdate:  func(c, _ *capacity) []string { return warnings(c) },
		Columns: []resource.Column[*capacity]{
			{Name: "Name"},
			{Name: "StorageClassName", Doc: doc["storageClassName"], Value: func(c *capacity) any { return c.StorageClassName }},
			{Name: "Capacity", Doc: doc["capacity"], Value: func(c *capacity) any {
				if c.Capacity == nil {
					return resource.Unset
				}
				return c.Capacity.String()
			}},
		},
	}
}

func validate(c *capacity) field.ErrorList {
	errs := metavalidation.ValidateLabelSelector(c.NodeTopology, metavalidation.LabelSelectorValidationOptions{}, field.NewPath("nodeTopology"))
	errs = append(errs, volumespec.ClassName(c.StorageClassName, field.NewPath("storageClassName"))...)
	if c.Capacity != nil && c.Capacity.Sign() < 0 {
		errs = append(errs, field.Invalid(field.NewPath("capacity"), c.Capacity.String(), apivalidation.IsNegativeErrorMsg))
	}
	return errs
}

// validateUpdate: what the driver was asked stays, its answer changes.
func validateUpdate(c, old *capacity) field.ErrorList {
	errs := validate(c)
	if !apiequality.Semantic.DeepEqual(c.NodeTopology, old.NodeTopology) {
		errs = append(errs, field.Invalid(field.NewPath("nodeTopology"), c.NodeTopology, "field is immutable"))
	}
	if c.StorageClassName != old.StorageClassName {
		errs = append(errs, field.Invalid(field.NewPath("storageClassName"), c.StorageClassName, "field is immutable"))
	}
	return errs
}

// warnings are about parts of labels that nodes had once.
func warnings(c *capacity) (list []string) {
	if c.NodeTopology == nil {
		return nil
	}
	at := field.NewPath("nodeTopology")
	for i, e := range c.NodeTopology.MatchExpressions {
		if told, ok := node.DeprecatedLabel(e.Key); ok {
			list = append(list, fmt.Sprintf("%s: %s is %s", at.Child("matchExpressions").Index(i).Child("key"), e.Key, told))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.NodeTopology.MatchLabels)) {
		if told, ok := node.DeprecatedLabel(key); ok {
			list = append(list, fmt.Sprintf("%s: %s", at.Child("matchLabels", key), told))
		}
	}
	return list
}
