// Package persistentvolumeclaim serves the resource persistentvolumeclaims of v1 and its subresource status: that somebody wants a volume, and what came of it.
package persistentvolumeclaim

import (
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	helpers "k8s.io/component-helpers/storage/volume"

	"monopod.dev/monopod/internal/apiserver/registry/persistentvolume"
	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
	"monopod.dev/monopod/internal/pods/defaults"
	"monopod.dev/monopod/internal/pods/validation"
)

type claim = corev1.PersistentVolumeClaim

// Resource is the resource persistentvolumeclaims.
func Resource() resource.Of[*claim, *corev1.PersistentVolumeClaimList] {
	return resource.Of[*claim, *corev1.PersistentVolumeClaimList]{
		Plural:     "persistentvolumeclaims",
		Short:      []string{"pvc"},
		Namespaced: true,
		ReadBy:     resource.Viewer,
		WrittenBy:  resource.Editor,
		Honours:    Honours(),
		Default:    SetDefaults,
		Prepare:    func(c *claim) { sameSource(&c.Spec, false) },
		PrepareUpdate: func(c, old *claim) {
			sameSource(&c.Spec, old.Spec.DataSource != nil || old.Spec.DataSourceRef != nil)
		},
		Create:     validate,
		Update:     validateUpdate,
		Warn:       warnings,
		WarnUpdate: func(c, _ *claim) []string { return warnings(c) },
		Status: &resource.Status[*claim]{
			// Upstream has no health of volumes in it unless the gate of features CSIVolumeHealth is open, which is closed by default.
			Prepare: func(c, _ *claim) { c.Status.HealthStatus = nil },
			Update:  validateStatus,
		},
		Fields:  func(c *claim) fields.Set { return fields.Set{"name": c.Name} }, // beside metadata.name, as upstream
		Store:   func(store *genericregistry.Store) { store.ReturnDeletedObject = true },
		Columns: columns(),
	}
}

// Honours are the fields of a claim, wherever it stands.
func Honours() apifields.Table {
	return apifields.Table{
		reflect.TypeFor[claim](): apifields.All("Spec").And(apifields.Left, "Status"),
		reflect.TypeFor[corev1.PersistentVolumeClaimSpec](): apifields.All("AccessModes", "Selector", "Resources", "VolumeName", "StorageClassName", "VolumeMode",
			"DataSource", "DataSourceRef", "VolumeAttributesClassName"),
		reflect.TypeFor[corev1.VolumeResourceRequirements](): apifields.All("Limits", "Requests"),
		reflect.TypeFor[corev1.TypedLocalObjectReference]():  apifields.All("APIGroup", "Kind", "Name"),
		reflect.TypeFor[corev1.TypedObjectReference]():       apifields.All("APIGroup", "Kind", "Name").And(apifields.But("copy the source to the namespace of the claim"), "Namespace"),
	}
}

// SetDefaults sets the defaults of a claim, wherever it stands.
func SetDefaults(c *claim) {
	if c.Status.Phase == "" {
		c.Status.Phase = corev1.ClaimPending
	}
	defaults.ClaimSpec(&c.Spec)
	defaults.RoundUp(c.Status.Capacity)
	defaults.RoundUp(c.Status.AllocatedResources)
}

// sameSource says what a volume is to be filled with in both fields for it, since clients know the one or the other (KEP-1495). The older one may name what it
// could not by itself where the newer one has said so before.
func sameSource(s *corev1.PersistentVolumeClaimSpec, before bool) {
	switch from, ref := s.DataSource, s.DataSourceRef; {
	case from != nil && ref == nil:
		if !before && !validation.InDataSource(from.APIGroup, from.Kind) {
			return // which is refused
		}
		from = from.DeepCopy()
		s.DataSourceRef = &corev1.TypedObjectReference{APIGroup: from.APIGroup, Kind: from.Kind, Name: from.Name}
	case from == nil && ref != nil && (ref.Namespace == nil || *ref.Namespace == ""):
		ref = ref.DeepCopy()
		s.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ref.APIGroup, Kind: ref.Kind, Name: ref.Name}
	}
}

// warnings are about what was written otherwise once, and about parts of bytes.
func warnings(c *claim) (list []string) {
	if _, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		list = append(list, fmt.Sprintf(`%s: deprecated since v1.8; use "storageClassName" attribute instead`,
			field.NewPath("metadata", "annotations").Key(corev1.BetaStorageClassAnnotation)))
	}
	at := field.NewPath("spec", "resources")
	for _, one := range []struct {
		name string
		list corev1.ResourceList
	}{{"requests", c.Spec.Resources.Requests}, {"limits", c.Spec.Resources.Limits}} {
		if q := one.list[corev1.ResourceStorage]; q.MilliValue()%1000 != 0 {
			list = append(list, fmt.Sprintf("%s: fractional byte value %q is invalid, must be an integer", at.Child(one.name).Key(string(corev1.ResourceStorage)), q.String()))
		}
	}
	return list
}

func columns() []resource.Column[*claim] {
	doc, status := corev1.PersistentVolumeClaimSpec{}.SwaggerDoc(), corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()
	return []resource.Column[*claim]{
		{Name: "Name"},
		{Name: "Status", Doc: status["phase"], Value: func(c *claim) any {
			if c.DeletionTimestamp != nil {
				return "Terminating"
			}
			return string(c.Status.Phase)
		}},
		{Name: "Volume", Doc: doc["volumeName"], Value: func(c *claim) any { return c.Spec.VolumeName }},
		{Name: "Capacity", Doc: status["capacity"], Value: func(c *claim) any {
			if c.Spec.VolumeName == "" {
				return ""
			}
			return c.Status.Capacity.Storage().String()
		}},
		{Name: "Access Modes", Doc: status["accessModes"], Value: func(c *claim) any {
			if c.Spec.VolumeName == "" {
				return ""
			}
			return persistentvolume.Modes(c.Status.AccessModes)
		}},
		{Name: "StorageClass", Doc: "StorageClass of the pvc", Value: func(c *claim) any { return helpers.GetPersistentVolumeClaimClass(c) }},
		{Name: "VolumeAttributesClass", Doc: "VolumeAttributesClass of the pvc", Value: func(c *claim) any { return resource.OrUnset(c.Spec.VolumeAttributesClassName) }},
		{Name: "Age"},
		{Name: "VolumeMode", Wide: true, Doc: doc["volumeMode"], Value: func(c *claim) any { return resource.OrUnset(c.Spec.VolumeMode) }},
	}
}
