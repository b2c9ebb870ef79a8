package pod

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// These two are what other resources need of a pod's specification. They move with the rest of the defaults and the validation to package pods.

// SetTemplateDefaults fills in what a template of pods may leave out.
func SetTemplateDefaults(template *corev1.PodTemplateSpec) {
	p := &corev1.Pod{Spec: template.Spec}
	setPodDefaults(p)
	template.Spec = p.Spec
}

// CheckTemplate tells what is wrong with a template of pods.
func CheckTemplate(template *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	errs := metavalidation.ValidateLabels(template.Labels, path.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(template.Annotations, path.Child("annotations"))...)
	errs = append(errs, notHonoured(&template.Spec, path.Child("spec"))...)
	return append(errs, validateSpec(&template.Spec, path.Child("spec"))...)
}
