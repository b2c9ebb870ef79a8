package csinode

import (
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/apiserver/registry/volumespec"
)

// maxNodeID is the most bytes that a driver's own name of a node may have.
const maxNodeID = 256

func validate(n *storagev1.CSINode) (errs field.ErrorList) {
	at, seen := field.NewPath("spec", "drivers"), sets.New[string]()
	for i := range n.Spec.Drivers {
		d, at := &n.Spec.Drivers[i], at.Index(i)
		errs = append(errs, validateDriver(d, at)...)
		if seen.Has(d.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), d.Name))
		}
		seen.Insert(d.Name)
	}
	return errs
}

// validateUpdate: what a driver has said of itself stays, but how many volumes it can attach.
func validateUpdate(n, old *storagev1.CSINode) field.ErrorList {
	errs, had := validate(n), map[string]*storagev1.CSINodeDriver{}
	for i := range old.Spec.Drivers {
		had[old.Spec.Drivers[i].Name] = &old.Spec.Drivers[i]
	}
	for i := range n.Spec.Drivers {
		if was := had[n.Spec.Drivers[i].Name]; was != nil {
			driver, before := n.Spec.Drivers[i], *was
			driver.Allocatable, before.Allocatable = nil, nil
			errs = append(errs, apivalidation.ValidateImmutableField(&driver, &before, field.NewPath("spec", "drivers"))...)
		}
	}
	return errs
}

func validateDriver(d *storagev1.CSINodeDriver, at *field.Path) field.ErrorList {
	errs, id := volumespec.DriverName(d.Name, at.Child("name")), at.Child("nodeID")
	if d.NodeID == "" {
		errs = append(errs, field.Required(id, d.NodeID))
	}
	if len(d.NodeID) > maxNodeID {
		errs = append(errs, field.Invalid(id, d.NodeID, fmt.Sprintf("must be %d characters or less", maxNodeID)))
	}
	if d.Allocatable != nil && d.Allocatable.Count != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*d.Allocatable.Count), at.Child("allocatable", "count"))...)
	}
	keys := sets.New[string]()
	for _, key := range d.TopologyKeys {
		if key == "" {
			errs = append(errs, field.Required(at, key))
		}
		if keys.Has(key) {
			errs = append(errs, field.Duplicate(at, key))
		}
		keys.Insert(key)
		for _, msg := range validation.IsQualifiedName(key) {
			errs = append(errs, field.Invalid(at, key, msg))
		}
	}
	return errs
}
