// Package podtemplate serves the resource podtemplates of core/v1.
package podtemplate

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"

	"monopod.dev/monopod/internal/apiserver/registry/workload"
	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
	"monopod.dev/monopod/internal/pods/defaults"
	"monopod.dev/monopod/internal/pods/validation"
)

// Resource is the resource podtemplates. Which fields of a pod are honoured, the pods' own table says.
func Resource() resource.Of[*corev1.PodTemplate, *corev1.PodTemplateList] {
	return resource.Of[*corev1.PodTemplate, *corev1.PodTemplateList]{
		Plural:     "podtemplates",
		Namespaced: true,
		Honours:    apifields.Table{reflect.TypeFor[corev1.PodTemplate](): apifields.Fields{}.And(apifields.Left, "Template")},
		Default:    func(t *corev1.PodTemplate) { defaults.Template(&t.Template) },
		Create: func(t *corev1.PodTemplate) field.ErrorList {
			return validation.Template(&t.Template, field.NewPath("template"))
		},
		Warn: func(t *corev1.PodTemplate) []string {
			return validation.TemplateWarnings(&t.Template, field.NewPath("template"))
		},
		Prepare: func(t *corev1.PodTemplate) { t.Generation = 1 },
		PrepareUpdate: func(t, old *corev1.PodTemplate) {
			t.Generation = old.Generation
			if !apiequality.Semantic.DeepEqual(t.Template, old.Template) {
				t.Generation++
			}
		},
		Store:   func(store *genericregistry.Store) { store.ReturnDeletedObject = true },
		Columns: columns(),
	}
}

func columns() []resource.Column[*corev1.PodTemplate] {
	all := []resource.Column[*corev1.PodTemplate]{{Name: "Name"}}
	all = append(all, workload.ContainerColumns(false, func(t *corev1.PodTemplate) *corev1.PodTemplateSpec { return &t.Template })...)
	return append(all, resource.Column[*corev1.PodTemplate]{Name: "Pod Labels", Doc: "The labels for the pod template.",
		Value: func(t *corev1.PodTemplate) any { return resource.OrNone(labels.FormatLabels(t.Template.Labels)) }})
}
