package validation

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods"
)

// Warnings tells what is legal in a pod, but hardly meant.
func Warnings(pod *corev1.Pod) []string {
	return append(annotationWarnings(pod.Annotations, &pod.Spec, field.NewPath("metadata", "annotations"), false), specWarnings(&pod.Spec, field.NewPath("spec"))...)
}

// TemplateWarnings tells the same of a template, which stands at path.
func TemplateWarnings(template *corev1.PodTemplateSpec, path *field.Path) []string {
	list := annotationWarnings(template.Annotations, &template.Spec, path.Child("metadata", "annotations"), true)
	return append(list, specWarnings(&template.Spec, path.Child("spec"))...)
}

func specWarnings(spec *corev1.PodSpec, path *field.Path) []string {
	var list []string
	secrets := sets.New[string]()
	for i, s := range spec.ImagePullSecrets {
		at := path.Child("imagePullSecrets").Index(i).Child("name")
		switch {
		case s.Name == "":
			list = append(list, fmt.Sprintf("%s: invalid empty name %q", at, s.Name))
		case secrets.Has(s.Name):
			list = append(list, fmt.Sprintf("%s: duplicate name %q", at, s.Name))
		}
		secrets.Insert(s.Name)
	}
	for at, c := range pods.ContainersAt(spec, path) {
		seen := sets.New[string]()
		for i := range c.Env {
			if name := c.Env[i].Name; seen.Has(name) {
				list = append(list, fmt.Sprintf("%s: hides previous definition of %q", at.Path().Child("env").Index(i), name))
			} else {
				seen.Insert(name)
			}
		}
	}
	if grace := spec.TerminationGracePeriodSeconds; grace != nil && *grace < 0 {
		list = append(list, fmt.Sprintf("%s: must be >= 0; negative values are invalid and will be treated as 1", path.Child("terminationGracePeriodSeconds")))
	}
	return append(list, nullSelectors(spec, path)...)
}

// nullSelectors are those of other pods that are left out, which is not to say that any pod would do.
func nullSelectors(spec *corev1.PodSpec, path *field.Path) (list []string) {
	look := func(selector *metav1.LabelSelector, at *field.Path) {
		if selector == nil {
			list = append(list, fmt.Sprintf("%s: a null labelSelector results in matching no pod", at.Child("labelSelector")))
		}
	}
	for term := range pods.PodTerms(spec) {
		look(term.LabelSelector, term.Path(path))
	}
	for i := range spec.TopologySpreadConstraints {
		look(spec.TopologySpreadConstraints[i].LabelSelector, path.Child("topologySpreadConstraints").Index(i))
	}
	return list
}
