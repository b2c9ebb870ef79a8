package validation

import (
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/storage/ephemeral"
)

func validateClaimVolume(s *corev1.PersistentVolumeClaimVolumeSource, at *field.Path) field.ErrorList {
	if s.ClaimName == "" {
		return field.ErrorList{field.Required(at.Child("claimName"), "")}
	}
	return nil
}

// validateEphemeralVolume is about the claim that a pod brings along. Of its metadata there are labels and annotations: the rest follows from the pod.
func validateEphemeralVolume(s *corev1.EphemeralVolumeSource, at *field.Path) field.ErrorList {
	template, at := s.VolumeClaimTemplate, at.Child("volumeClaimTemplate")
	if template == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	meta := at.Child("metadata")
	errs := apivalidation.ValidateAnnotations(template.Annotations, meta.Child("annotations"))
	errs = append(errs, metavalidation.ValidateLabels(template.Labels, meta.Child("labels"))...)
	v := reflect.ValueOf(template.ObjectMeta)
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.Name != "Annotations" && f.Name != "Labels" && !v.Field(i).IsZero() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			errs = append(errs, field.Forbidden(meta.Child(name), "cannot be set"))
		}
	}
	return append(errs, ClaimSpec(&template.Spec, at.Child("spec"))...)
}

// EphemeralClaims tells what is wrong with the names of the claims that a pod brings along, which follow from its own name. at is where its volumes stand.
func EphemeralClaims(pod *corev1.Pod, at *field.Path) (errs field.ErrorList) {
	made := sets.New[string]()
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Ephemeral == nil || pod.Name == "" || v.Name == "" {
			continue
		}
		name := ephemeral.VolumeClaimName(pod, v)
		made.Insert(name)
		for _, message := range validation.IsDNS1123Subdomain(name) {
			errs = append(errs, field.Invalid(at.Index(i).Child("name"), v.Name, fmt.Sprintf("PVC name %q: %s", name, message)))
		}
	}
	for i := range pod.Spec.Volumes {
		if claim := pod.Spec.Volumes[i].PersistentVolumeClaim; claim != nil && made.Has(claim.ClaimName) {
			errs = append(errs, field.Invalid(at.Index(i).Child("persistentVolumeClaim", "claimName"), claim.ClaimName,
				"must not reference a PVC that gets created for an ephemeral volume"))
		}
	}
	return errs
}
