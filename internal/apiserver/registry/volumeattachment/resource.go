// Package volumeattachment serves the resource volumeattachments of storage.k8s.io/v1 and its subresource status: that a volume is to be attached to a node, as
// a controller asks the CSI driver, and what came of it, as the driver says.
package volumeattachment

import (
	"math"
	"reflect"

	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"

	"monopod.dev/monopod/internal/apiserver/registry/volumespec"
	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

type attachment = storagev1.VolumeAttachment

const (
	// maxMetadata is how many bytes the driver may tell of a volume that is attached, maxMessage of what went wrong.
	maxMetadata = 256 << 10
	maxMessage  = 1024
)

// Resource is the resource volumeattachments.
func Resource() resource.Of[*attachment, *storagev1.VolumeAttachmentList] {
	spec := storagev1.VolumeAttachmentSpec{}.SwaggerDoc()
	return resource.Of[*attachment, *storagev1.VolumeAttachmentList]{
		Group:  storagev1.GroupName,
		Plural: "volumeattachments",
		Honours: apifields.Table{
			reflect.TypeFor[attachment]():                       apifields.All("Spec").And(apifields.Left, "Status"),
			reflect.TypeFor[storagev1.VolumeAttachmentSpec]():   apifields.All("Attacher", "Source", "NodeName"),
			reflect.TypeFor[storagev1.VolumeAttachmentSource](): apifields.All("PersistentVolumeName").And(apifields.Left, "InlineVolumeSpec"), // it is the driver's
		},
		NamedUpdate: true,
		Create:      validate,
		Update:      validateUpdate,
		Status:      &resource.Status[*attachment]{Alone: true, Update: validateUpdate},
		Store:       func(store *genericregistry.Store) { store.ReturnDeletedObject = true },
		Columns: []resource.Column[*attachment]{
			{Name: "Name"},
			{Name: "Attacher", Doc: spec["attacher"], Value: func(a *attachment) any { return a.Spec.Attacher }},
			{Name: "PV", Doc: storagev1.VolumeAttachmentSource{}.SwaggerDoc()["persistentVolumeName"], Value: func(a *attachment) any {
				if a.Spec.Source.PersistentVolumeName == nil {
					return ""
				}
				return *a.Spec.Source.PersistentVolumeName
			}},
			{Name: "Node", Doc: spec["nodeName"], Value: func(a *attachment) any { return a.Spec.NodeName }},
			{Name: "Attached", Type: "boolean", Doc: storagev1.VolumeAttachmentStatus{}.SwaggerDoc()["attached"], Value: func(a *attachment) any { return a.Status.Attached }},
			{Name: "Age"},
		},
	}
}

func validate(a *attachment) field.ErrorList {
	at := field.NewPath("spec")
	errs := volumespec.DriverName(a.Spec.Attacher, at.Child("attacher"))
	errs = append(errs, validateSource(&a.Spec.Source, at.Child("source"))...)
	for _, msg := range apivalidation.NameIsDNSSubdomain(a.Spec.NodeName, false) {
		errs = append(errs, field.Invalid(at.Child("nodeName"), a.Spec.NodeName, msg))
	}
	at = field.NewPath("status")
	size := 0
	for key, value := range a.Status.AttachmentMetadata {
		size += len(key) + len(value)
	}
	if size > maxMetadata {
		errs = append(errs, field.TooLong(at.Child("attachmentMetadata"), "", maxMetadata))
	}
	errs = append(errs, validateError(a.Status.AttachError, at.Child("attachError"))...)
	return append(errs, validateError(a.Status.DetachError, at.Child("detachError"))...)
}

func validateUpdate(a, old *attachment) field.ErrorList {
	return append(validate(a), apivalidation.ValidateImmutableField(a.Spec, old.Spec, field.NewPath("spec"))...)
}

// validateSource is about which volume it is: one of its own object, or one of a pod that was written for a kind of volume that the driver took over.
func validateSource(s *storagev1.VolumeAttachmentSource, at *field.Path) (errs field.ErrorList) {
	const one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
	switch {
	case s.InlineVolumeSpec == nil && s.PersistentVolumeName == nil:
		errs = append(errs, field.Required(at, one))
	case s.InlineVolumeSpec != nil && s.PersistentVolumeName != nil:
		errs = append(errs, field.Forbidden(at, one))
	case s.InlineVolumeSpec != nil:
		errs = append(errs, volumespec.Inline(s.InlineVolumeSpec, at.Child("inlineVolumeSpec"))...)
	case *s.PersistentVolumeName == "":
		errs = append(errs, field.Required(at.Child("persistentVolumeName"), "must specify non empty persistentVolumeName"))
	}
	if name := s.PersistentVolumeName; name != nil {
		for _, msg := range apivalidation.NameIsDNSSubdomain(*name, false) {
			errs = append(errs, field.Invalid(at.Child("persistentVolumeName"), *name, msg))
		}
	}
	return errs
}

func validateError(e *storagev1.VolumeError, at *field.Path) (errs field.ErrorList) {
	if e == nil {
		return nil
	}
	if len(e.Message) > maxMessage {
		errs = append(errs, field.TooLong(at.Child("message"), "", maxMessage))
	}
	if e.ErrorCode != nil && *e.ErrorCode < 0 {
		errs = append(errs, field.Invalid(at.Child("errorCode"), *e.ErrorCode, validation.InclusiveRangeError(0, math.MaxInt32)))
	}
	return errs
}
