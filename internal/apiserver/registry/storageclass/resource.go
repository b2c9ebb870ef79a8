// Package storageclass serves the resource storageclasses of storage.k8s.io/v1: who makes volumes for claims, and how.
package storageclass

import (
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"

	"monopod.dev/monopod/internal/apiserver/registry/node"
	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
	"monopod.dev/monopod/internal/pods"
)

// Resource is the resource storageclasses.
func Resource() resource.Of[*storagev1.StorageClass, *storagev1.StorageClassList] {
	return resource.Of[*storagev1.StorageClass, *storagev1.StorageClassList]{
		Group:  storagev1.GroupName,
		Plural: "storageclasses",
		Short:  []string{"sc"},
		Honours: apifields.Table{
			reflect.TypeFor[storagev1.StorageClass](): apifields.All(
				"Provisioner", "Parameters", "ReclaimPolicy", "MountOptions", "AllowVolumeExpansion", "VolumeBindingMode", "AllowedTopologies"),
			reflect.TypeFor[corev1.TopologySelectorTerm]():             apifields.All("MatchLabelExpressions"),
			reflect.TypeFor[corev1.TopologySelectorLabelRequirement](): apifields.All("Key", "Values"),
		},
		Default:    setDefaults,
		Create:     validate,
		Update:     validateUpdate,
		Warn:       warnings,
		WarnUpdate: func(c, _ *storagev1.StorageClass) []string { return warnings(c) },
		Store:      func(store *genericregistry.Store) { store.ReturnDeletedObject = true },
		Columns:    columns(),
		Rows:       rows,
	}
}

func setDefaults(c *storagev1.StorageClass) {
	if c.ReclaimPolicy == nil {
		c.ReclaimPolicy = new(corev1.PersistentVolumeReclaimDelete)
	}
	if c.VolumeBindingMode == nil {
		c.VolumeBindingMode = new(storagev1.VolumeBindingImmediate)
	}
}

// warnings are about topologies of labels that nodes had once.
func warnings(c *storagev1.StorageClass) (list []string) {
	for i, term := range c.AllowedTopologies {
		for j, e := range term.MatchLabelExpressions {
			if told, ok := node.DeprecatedLabel(e.Key); ok {
				list = append(list, fmt.Sprintf("%s: %s", field.NewPath("allowedTopologies").Index(i).Child("matchLabelExpressions").Index(j).Child("key"), told))
			}
		}
	}
	return list
}

func columns() []resource.Column[*storagev1.StorageClass] {
	doc := storagev1.StorageClass{}.SwaggerDoc()
	return []resource.Column[*storagev1.StorageClass]{
		{Name: "Name"},
		{Name: "Provisioner", Doc: doc["provisioner"]},
		{Name: "ReclaimPolicy", Doc: doc["reclaimPolicy"]},
		{Name: "VolumeBindingMode", Doc: doc["volumeBindingMode"]},
		{Name: "AllowVolumeExpansion", Doc: doc["allowVolumeExpansion"]},
		{Name: "Age"},
	}
}

// rows mark the default class, which only who sees them all can tell.
func rows(list []*storagev1.StorageClass) resource.RowFunc[*storagev1.StorageClass] {
	preferred := pods.DefaultStorageClass(list)
	return func(c *storagev1.StorageClass, now time.Time) ([]any, []metav1.TableRowCondition) {
		name, policy, mode := c.Name, corev1.PersistentVolumeReclaimDelete, storagev1.VolumeBindingImmediate
		if preferred == c {
			name += " (default)"
		}
		if c.ReclaimPolicy != nil {
			policy = *c.ReclaimPolicy
		}
		if c.VolumeBindingMode != nil {
			mode = *c.VolumeBindingMode
		}
		grows := c.AllowVolumeExpansion != nil && *c.AllowVolumeExpansion
		return []any{name, c.Provisioner, string(policy), string(mode), grows, resource.Age(c.CreationTimestamp.Time, now)}, nil
	}
}
