package persistentvolume

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/apiserver/registry/volumespec"
)

func validate(v *volume) field.ErrorList {
	errs := volumespec.Spec(&v.Spec, v.Name, field.NewPath("spec"))
	// Kinds that know mount options take them from the annotation, too; of those that are honoured it is nfs.
	if _, ok := v.Annotations[mountOptionsAnnotation]; ok && v.Spec.NFS == nil {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations", mountOptionsAnnotation), "may not specify mount options for this volume type"))
	}
	return errs
}

// validateUpdate: what a volume is does not change, nor where it is, once that is said.
func validateUpdate(v, old *volume) field.ErrorList {
	errs := validate(v)
	source := v.Spec.PersistentVolumeSource
	if c := source.CSI; c != nil && c.ControllerExpandSecretRef != nil && old.Spec.CSI != nil && old.Spec.CSI.ControllerExpandSecretRef == nil {
		source.CSI = c.DeepCopy()
		source.CSI.ControllerExpandSecretRef = nil // it may be added
	}
	if !apiequality.Semantic.DeepEqual(source, old.Spec.PersistentVolumeSource) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "persistentvolumesource"),
			fmt.Sprintf("spec.persistentvolumesource is immutable after creation\n%v", diff.Diff(old.Spec.PersistentVolumeSource, source))))
	}
	errs = append(errs, apivalidation.ValidateImmutableField(v.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
	if old.Spec.NodeAffinity != nil && !apiequality.Semantic.DeepEqual(v.Spec.NodeAffinity, renamed(old.Spec.NodeAffinity, v.Spec.NodeAffinity)) {
		errs = append(errs, field.Invalid(field.NewPath("nodeAffinity"), v.Spec.NodeAffinity, "field is immutable, except for updating from beta label to GA"))
	}
	if old.Spec.VolumeAttributesClassName != nil && v.Spec.VolumeAttributesClassName == nil {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "volumeAttributesClassName"), "update from non-nil value to nil is forbidden"))
	}
	return errs
}

// names are the labels that others stand for by now.
var names = map[string]string{
	corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
	"beta.kubernetes.io/os":             corev1.LabelOSStable,
	"beta.kubernetes.io/arch":           corev1.LabelArchStable,
	corev1.LabelInstanceType:            corev1.LabelInstanceTypeStable,
}

// renamed is old with the new names of the labels for which now has them.
func renamed(old, now *corev1.VolumeNodeAffinity) *corev1.VolumeNodeAffinity {
	if now == nil || now.Required == nil || old.Required == nil || len(now.Required.NodeSelectorTerms) != len(old.Required.NodeSelectorTerms) {
		return old
	}
	old = old.DeepCopy()
	for i, term := range old.Required.NodeSelectorTerms {
		is := now.Required.NodeSelectorTerms[i].MatchExpressions
		for j := range min(len(is), len(term.MatchExpressions)) {
			if e := &term.MatchExpressions[j]; names[e.Key] == is[j].Key {
				e.Key = is[j].Key
			}
		}
	}
	return old
}

func validateStatus(v, _ *volume) field.ErrorList {
	if v.ResourceVersion == "" {
		return field.ErrorList{field.Required(field.NewPath("resourceVersion"), "")}
	}
	return nil
}
