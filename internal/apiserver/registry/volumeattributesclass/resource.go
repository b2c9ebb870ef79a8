// Package volumeattributesclass serves the resource volumeattributesclasses of storage.k8s.io/v1: how a CSI driver is to serve a volume, as it may change while
// the volume is there.
package volumeattributesclass

import (
	"reflect"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"

	"monopod.dev/monopod/internal/apiserver/registry/storageclass"
	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

// Resource is the resource volumeattributesclasses.
func Resource() resource.Of[*storagev1.VolumeAttributesClass, *storagev1.VolumeAttributesClassList] {
	doc := storagev1.VolumeAttributesClass{}.SwaggerDoc()
	return resource.Of[*storagev1.VolumeAttributesClass, *storagev1.VolumeAttributesClassList]{
		Group:   storagev1.GroupName,
		Plural:  "volumeattributesclasses",
		Short:   []string{"vac"},
		Honours: apifields.Table{reflect.TypeFor[storagev1.VolumeAttributesClass](): apifields.All("DriverName", "Parameters")},
		Create:  validate,
		Update:  validateUpdate,
		Store:   func(store *genericregistry.Store) { store.ReturnDeletedObject = true },
		Columns: []resource.Column[*storagev1.VolumeAttributesClass]{
			{Name: "Name"},
			{Name: "DriverName", Doc: doc["driverName"], Value: func(c *storagev1.VolumeAttributesClass) any { return c.DriverName }},
			{Name: "Age"},
		},
	}
}

func validate(c *storagev1.VolumeAttributesClass) field.ErrorList {
	errs := storageclass.Provisioner(c.DriverName, field.NewPath("driverName"))
	errs = append(errs, storageclass.Parameters(c.Parameters, field.NewPath("parameters"))...)
	if len(c.Parameters) == 0 {
		errs = append(errs, field.Required(field.NewPath("parameters"), "must contain at least one key/value pair"))
	}
	return errs
}

func validateUpdate(c, old *storagev1.VolumeAttributesClass) (errs field.ErrorList) {
	if c.DriverName != old.DriverName {
		errs = append(errs, field.Forbidden(field.NewPath("driverName"), "updates to driverName are forbidden."))
	}
	if !reflect.DeepEqual(c.Parameters, old.Parameters) {
		errs = append(errs, field.Forbidden(field.NewPath("parameters"), "updates to parameters are forbidden."))
	}
	return append(errs, validate(c)...)
}
