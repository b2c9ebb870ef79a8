// Package replicaset serves the resource replicasets of apps/v1, and its subresources status and scale.
package replicaset

import (
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/apiserver/registry/workload"
	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
	"monopod.dev/monopod/internal/pods/defaults"
)

// Resource is the resource replicasets. Which fields of a pod are honoured, the pods' own table says.
func Resource() resource.Of[*appsv1.ReplicaSet, *appsv1.ReplicaSetList] {
	return resource.Of[*appsv1.ReplicaSet, *appsv1.ReplicaSetList]{
		Group:      appsv1.GroupName,
		Plural:     "replicasets",
		Short:      []string{"rs"},
		Categories: []string{"all"},
		Namespaced: true,
		ReadBy:     resource.Viewer,
		WrittenBy:  resource.Editor,
		Honours: apifields.Table{
			reflect.TypeFor[appsv1.ReplicaSet]():     apifields.All("Spec").And(apifields.Left, "Status"),
			reflect.TypeFor[appsv1.ReplicaSetSpec](): apifields.All("Replicas", "MinReadySeconds", "Selector").And(apifields.Left, "Template"),
		},
		Default: setDefaults,
		Create:  func(r *appsv1.ReplicaSet) field.ErrorList { return validate(r, nil) },
		Update: func(r, old *appsv1.ReplicaSet) field.ErrorList {
			return append(validate(r, &old.Spec.Template),
				apivalidation.ValidateImmutableField(r.Spec.Selector, old.Spec.Selector, field.NewPath("spec", "selector"))...)
		},
		Warn: func(r *appsv1.ReplicaSet) []string {
			return append(workload.NameWarnings(r.Name), workload.Warnings(&r.Spec.Template)...)
		},
		WarnUpdate: func(r, old *appsv1.ReplicaSet) []string {
			if r.Generation == old.Generation {
				return nil
			}
			return workload.Warnings(&r.Spec.Template)
		},
		Generation: true,
		Status:     &resource.Status[*appsv1.ReplicaSet]{Update: validateStatus},
		Columns:    columns(),
		Parts: map[string]resource.Part{"scale": workload.Scalable[*appsv1.ReplicaSet]{
			Version:  appsv1.SchemeGroupVersion,
			Replicas: func(r *appsv1.ReplicaSet) **int32 { return &r.Spec.Replicas },
			Pods: func(r *appsv1.ReplicaSet) (int32, labels.Selector, error) {
				selector, err := metav1.LabelSelectorAsSelector(r.Spec.Selector)
				return r.Status.Replicas, selector, err
			},
		}.Part()},
	}
}

func setDefaults(r *appsv1.ReplicaSet) {
	workload.SetDefault(&r.Spec.Replicas, 1)
	defaults.Template(&r.Spec.Template)
}

func validate(r *appsv1.ReplicaSet, old *corev1.PodTemplateSpec) field.ErrorList {
	spec := field.NewPath("spec")
	errs := workload.NotNegative(spec, workload.Optional("replicas", r.Spec.Replicas), workload.Of("minReadySeconds", r.Spec.MinReadySeconds))
	selects, wrong := workload.RequireSelector(r.Spec.Selector, "replicaset", spec.Child("selector"))
	errs = append(errs, wrong...)
	return append(errs, workload.ValidateTemplate(&r.Spec.Template, old, selects, "ReplicaSet", spec.Child("template"))...)
}

func validateStatus(r, _ *appsv1.ReplicaSet) field.ErrorList {
	s := &r.Status
	return workload.Counts{
		Replicas: s.Replicas, Ready: s.ReadyReplicas, Available: s.AvailableReplicas,
		Parts:  []workload.Number{workload.Of("fullyLabeledReplicas", s.FullyLabeledReplicas)},
		Others: []workload.Number{workload.Of("observedGeneration", s.ObservedGeneration), workload.Optional("terminatingReplicas", s.TerminatingReplicas)},
	}.Validate(field.NewPath("status"))
}

func columns() []resource.Column[*appsv1.ReplicaSet] {
	spec, status := appsv1.ReplicaSetSpec{}.SwaggerDoc(), appsv1.ReplicaSetStatus{}.SwaggerDoc()
	all := []resource.Column[*appsv1.ReplicaSet]{
		{Name: "Name"},
		workload.Count("Desired", spec["replicas"], func(r *appsv1.ReplicaSet) int32 { return workload.Wanted(r.Spec.Replicas) }),
		workload.Count("Current", status["replicas"], func(r *appsv1.ReplicaSet) int32 { return r.Status.Replicas }),
		workload.Count("Ready", status["readyReplicas"], func(r *appsv1.ReplicaSet) int32 { return r.Status.ReadyReplicas }),
		{Name: "Age"},
	}
	all = append(all, workload.ContainerColumns(true, func(r *appsv1.ReplicaSet) *corev1.PodTemplateSpec { return &r.Spec.Template })...)
	return append(all, resource.Column[*appsv1.ReplicaSet]{Name: "Selector", Wide: true, Doc: spec["selector"],
		Value: func(r *appsv1.ReplicaSet) any { return metav1.FormatLabelSelector(r.Spec.Selector) }})
}
