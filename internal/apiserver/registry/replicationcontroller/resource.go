// Package replicationcontroller serves the resource replicationcontrollers of core/v1, and its subresources status and scale.
package replicationcontroller

import (
	"maps"
	"reflect"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/apiserver/registry/workload"
	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
	"monopod.dev/monopod/internal/pods/defaults"
)

// Resource is the resource replicationcontrollers. Which fields of a pod are honoured, the pods' own table says.
func Resource() resource.Of[*corev1.ReplicationController, *corev1.ReplicationControllerList] {
	return resource.Of[*corev1.ReplicationController, *corev1.ReplicationControllerList]{
		Plural:     "replicationcontrollers",
		Short:      []string{"rc"},
		Categories: []string{"all"},
		Namespaced: true,
		ReadBy:     resource.Viewer,
		WrittenBy:  resource.Editor,
		Honours: apifields.Table{
			reflect.TypeFor[corev1.ReplicationController]():     apifields.All("Spec").And(apifields.Left, "Status"),
			reflect.TypeFor[corev1.ReplicationControllerSpec](): apifields.All("Replicas", "MinReadySeconds", "Selector").And(apifields.Left, "Template"),
		},
		Default: setDefaults,
		Create:  func(c *corev1.ReplicationController) field.ErrorList { return validate(c, nil) },
		Update:  func(c, old *corev1.ReplicationController) field.ErrorList { return validate(c, old.Spec.Template) },
		Warn: func(c *corev1.ReplicationController) []string {
			return append(workload.NameWarnings(c.Name), warnings(c)...)
		},
		WarnUpdate: func(c, old *corev1.ReplicationController) []string {
			if c.Generation == old.Generation {
				return nil
			}
			return warnings(c)
		},
		Generation: true,
		// The clients of its time deleted the pods themselves.
		Orphans: true,
		Status:  &resource.Status[*corev1.ReplicationController]{Update: validateStatus},
		Fields: func(c *corev1.ReplicationController) fields.Set {
			return fields.Set{"status.replicas": strconv.Itoa(int(c.Status.Replicas))}
		},
		Columns: columns(),
		Parts: map[string]resource.Part{"scale": workload.Scalable[*corev1.ReplicationController]{
			Version:  corev1.SchemeGroupVersion,
			Replicas: func(c *corev1.ReplicationController) **int32 { return &c.Spec.Replicas },
			Pods: func(c *corev1.ReplicationController) (int32, labels.Selector, error) {
				return c.Status.Replicas, labels.SelectorFromSet(c.Spec.Selector), nil
			},
		}.Part()},
	}
}

// setDefaults: the labels of the template are those of the selector, and of the object, where these have none.
func setDefaults(c *corev1.ReplicationController) {
	workload.SetDefault(&c.Spec.Replicas, 1)
	if c.Spec.Template == nil {
		return
	}
	if given := c.Spec.Template.Labels; given != nil {
		if len(c.Spec.Selector) == 0 {
			c.Spec.Selector = maps.Clone(given)
		}
		if len(c.Labels) == 0 {
			c.Labels = maps.Clone(given)
		}
	}
	defaults.Template(c.Spec.Template)
}

func validate(c *corev1.ReplicationController, old *corev1.PodTemplateSpec) field.ErrorList {
	spec := field.NewPath("spec")
	errs := workload.NotNegative(spec, workload.Optional("replicas", c.Spec.Replicas), workload.Of("minReadySeconds", c.Spec.MinReadySeconds))
	if len(c.Spec.Selector) == 0 {
		errs = append(errs, field.Required(spec.Child("selector"), ""))
	}
	if c.Spec.Template == nil {
		return append(errs, field.Required(spec.Child("template"), ""))
	}
	return append(errs, workload.ValidateTemplate(c.Spec.Template, old, labels.SelectorFromSet(c.Spec.Selector), "ReplicationController", spec.Child("template"))...)
}

func warnings(c *corev1.ReplicationController) []string {
	if c.Spec.Template == nil {
		return nil
	}
	return workload.Warnings(c.Spec.Template)
}

func validateStatus(c, _ *corev1.ReplicationController) field.ErrorList {
	s := &c.Status
	return workload.Counts{
		Replicas: s.Replicas, Ready: s.ReadyReplicas, Available: s.AvailableReplicas,
		Parts:  []workload.Number{workload.Of("fullyLabeledReplicas", s.FullyLabeledReplicas)},
		Others: []workload.Number{workload.Of("observedGeneration", s.ObservedGeneration)},
	}.Validate(field.NewPath("status"))
}

func columns() []resource.Column[*corev1.ReplicationController] {
	spec, status := corev1.ReplicationControllerSpec{}.SwaggerDoc(), corev1.ReplicationControllerStatus{}.SwaggerDoc()
	all := []resource.Column[*corev1.ReplicationController]{
		{Name: "Name"},
		workload.Count("Desired", spec["replicas"], func(c *corev1.ReplicationController) int32 { return workload.Wanted(c.Spec.Replicas) }),
		workload.Count("Current", status["replicas"], func(c *corev1.ReplicationController) int32 { return c.Status.Replicas }),
		workload.Count("Ready", status["readyReplicas"], func(c *corev1.ReplicationController) int32 { return c.Status.ReadyReplicas }),
		{Name: "Age"},
	}
	all = append(all, workload.ContainerColumns(true, func(c *corev1.ReplicationController) *corev1.PodTemplateSpec { return c.Spec.Template })...)
	return append(all, resource.Column[*corev1.ReplicationController]{Name: "Selector", Wide: true, Doc: spec["selector"],
		Value: func(c *corev1.ReplicationController) any { return labels.FormatLabels(c.Spec.Selector) }})
}
