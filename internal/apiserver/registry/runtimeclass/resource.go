// Package runtimeclass serves the resource runtimeclasses of node.k8s.io/v1.
package runtimeclass

import (
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

// Resource is the resource runtimeclasses.
func Resource() resource.Of[*nodev1.RuntimeClass, *nodev1.RuntimeClassList] {
	return resource.Of[*nodev1.RuntimeClass, *nodev1.RuntimeClassList]{
		Group:  nodev1.GroupName,
		Plural: "runtimeclasses",
		Honours: apifields.Table{
			reflect.TypeFor[nodev1.RuntimeClass](): apifields.All("Handler", "Overhead", "Scheduling"),
			reflect.TypeFor[nodev1.Overhead]():     apifields.All("PodFixed"),
			reflect.TypeFor[nodev1.Scheduling]():   apifields.All("NodeSelector", "Tolerations"),
			reflect.TypeFor[corev1.Toleration]():   apifields.All("Key", "Operator", "Value", "Effect", "TolerationSeconds"),
		},
		Create: validate,
		Update: func(c, old *nodev1.RuntimeClass) field.ErrorList {
			return append(apivalidation.ValidateImmutableField(c.Handler, old.Handler, field.NewPath("handler")), validate(c)...)
		},
		Columns: []resource.Column[*nodev1.RuntimeClass]{
			{Name: "Name"},
			{Name: "Handler", Doc: nodev1.RuntimeClass{}.SwaggerDoc()["handler"], Value: func(c *nodev1.RuntimeClass) any { return c.Handler }},
			{Name: "Age"},
		},
	}
}

func validate(c *nodev1.RuntimeClass) (errs field.ErrorList) {
	for _, msg := range apivalidation.NameIsDNSLabel(c.Handler, false) {
		errs = append(errs, field.Invalid(field.NewPath("handler"), c.Handler, msg))
	}
	if c.Overhead != nil {
		at := field.NewPath("overhead", "podFixed")
		for _, name := range slices.Sorted(maps.Keys(c.Overhead.PodFixed)) {
			quantity := c.Overhead.PodFixed[name]
			for _, msg := range validation.IsQualifiedName(string(name)) {
				errs = append(errs, field.Invalid(at.Key(string(name)), name, msg))
			}
			if quantity.Sign() < 0 {
				errs = append(errs, field.Invalid(at.Key(string(name)), quantity.String(), apivalidation.IsNegativeErrorMsg))
			}
		}
	}
	if c.Scheduling != nil {
		errs = append(errs, validateScheduling(c.Scheduling, field.NewPath("scheduling"))...)
	}
	return errs
}

// validateScheduling says of the tolerations that each is there once; what each says is checked of the pod that gets it.
func validateScheduling(s *nodev1.Scheduling, path *field.Path) field.ErrorList {
	errs := metavalidation.ValidateLabels(s.NodeSelector, path.Child("nodeSelector"))
	for i := range s.Tolerations {
		if at := path.Child("tolerations").Index(i); Tolerated(s.Tolerations[:i], &s.Tolerations[i]) {
			errs = append(errs, field.Duplicate(at, s.Tolerations[i]))
		}
	}
	return errs
}

// Tolerated reports whether a toleration is one of a list.
func Tolerated(list []corev1.Toleration, t *corev1.Toleration) bool {
	return slices.ContainsFunc(list, func(o corev1.Toleration) bool { return reflect.DeepEqual(o, *t) })
}
