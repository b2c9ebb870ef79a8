// Package csidriver serves the resource csidrivers of storage.k8s.io/v1: what a CSI driver needs and can do, as who installs it says.
package csidriver

import (
	"reflect"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

// Resource is the resource csidrivers.
func Resource() resource.Of[*storagev1.CSIDriver, *storagev1.CSIDriverList] {
	return resource.Of[*storagev1.CSIDriver, *storagev1.CSIDriverList]{
		Group:  storagev1.GroupName,
		Plural: "csidrivers",
		Honours: apifields.Table{
			reflect.TypeFor[storagev1.CSIDriver](): apifields.All("Spec"),
			reflect.TypeFor[storagev1.CSIDriverSpec](): apifields.All("AttachRequired", "PodInfoOnMount", "VolumeLifecycleModes", "StorageCapacity", "FSGroupPolicy",
				"TokenRequests", "RequiresRepublish", "SELinuxMount", "NodeAllocatableUpdatePeriodSeconds", "ServiceAccountTokenInSecrets",
				"PreventPodSchedulingIfMissing"),
			reflect.TypeFor[storagev1.TokenRequest](): apifields.All("Audience", "ExpirationSeconds"),
		},
		Generation:  true,
		NamedUpdate: true,
		Default:     setDefaults,
		Create:      validate,
		Update:      validateUpdate,
		Warn:        func(d *storagev1.CSIDriver) []string { return tokenWarnings(d, &storagev1.CSIDriver{}) },
		WarnUpdate:  tokenWarnings,
		Store:       func(store *genericregistry.Store) { store.ReturnDeletedObject = true },
		Columns:     columns(),
	}
}

// setDefaults is also about what is left out: who reads a driver needs to know nothing of it.
func setDefaults(d *storagev1.CSIDriver) {
	s := &d.Spec
	for where, value := range map[**bool]bool{
		&s.AttachRequired: true, &s.PodInfoOnMount: false, &s.StorageCapacity: false, &s.RequiresRepublish: false, &s.SELinuxMount: false,
		&s.PreventPodSchedulingIfMissing: false,
	} {
		if *where == nil {
			*where = new(value)
		}
	}
	if s.FSGroupPolicy == nil {
		s.FSGroupPolicy = new(storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	}
	if len(s.VolumeLifecycleModes) == 0 {
		s.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
}

// tokenWarnings are about tokens that the driver gets where they may be logged.
func tokenWarnings(d, old *storagev1.CSIDriver) []string {
	requests := d.Spec.TokenRequests
	if len(requests) == 0 || d.Spec.ServiceAccountTokenInSecrets != nil || apiequality.Semantic.DeepEqual(requests, old.Spec.TokenRequests) {
		return nil
	}
	return []string{"spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes"}
}

func columns() []resource.Column[*storagev1.CSIDriver] {
	doc := storagev1.CSIDriverSpec{}.SwaggerDoc()
	is := func(get func(*storagev1.CSIDriverSpec) *bool, otherwise bool) func(*storagev1.CSIDriver) any {
		return func(d *storagev1.CSIDriver) any {
			if value := get(&d.Spec); value != nil {
				return *value
			}
			return otherwise
		}
	}
	return []resource.Column[*storagev1.CSIDriver]{
		{Name: "Name"},
		{Name: "AttachRequired", Type: "boolean", Doc: doc["attachRequired"], Value: is(func(s *storagev1.CSIDriverSpec) *bool { return s.AttachRequired }, true)},
		{Name: "PodInfoOnMount", Type: "boolean", Doc: doc["podInfoOnMount"], Value: is(func(s *storagev1.CSIDriverSpec) *bool { return s.PodInfoOnMount }, false)},
		{Name: "StorageCapacity", Type: "boolean", Doc: doc["storageCapacity"], Value: is(func(s *storagev1.CSIDriverSpec) *bool { return s.StorageCapacity }, false)},
		{Name: "TokenRequests", Doc: doc["tokenRequests"], Value: func(d *storagev1.CSIDriver) any {
			if d.Spec.TokenRequests == nil {
				return resource.Unset
			}
			audiences := make([]string, 0, len(d.Spec.TokenRequests))
			for _, r := range d.Spec.TokenRequests {
				audiences = append(audiences, r.Audience)
			}
			return strings.Join(audiences, ",")
		}},
		{Name: "RequiresRepublish", Type: "boolean", Doc: doc["requiresRepublish"], Value: is(func(s *storagev1.CSIDriverSpec) *bool { return s.RequiresRepublish }, false)},
		{Name: "Modes", Doc: doc["volumeLifecycleModes"], Value: func(d *storagev1.CSIDriver) any {
			modes := make([]string, 0, len(d.Spec.VolumeLifecycleModes))
			for _, m := range d.Spec.VolumeLifecycleModes {
				modes = append(modes, string(m))
			}
			return resource.OrNone(strings.Join(modes, ","))
		}},
		{Name: "Age"},
	}
}
