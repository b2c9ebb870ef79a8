package workload

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/apiserver/resource"
)

// ContainerColumns tell of the containers of a template, which may be nil.
func ContainerColumns[T resource.Object](wide bool, template func(obj T) *corev1.PodTemplateSpec) []resource.Column[T] {
	each := func(say func(*corev1.Container) string) func(T) any {
		return func(obj T) any {
			var all []string
			if t := template(obj); t != nil {
				for i := range t.Spec.Containers {
					all = append(all, say(&t.Spec.Containers[i]))
				}
			}
			return strings.Join(all, ",")
		}
	}
	return []resource.Column[T]{
		{Name: "Containers", Wide: wide, Doc: "Names of each container in the template.", Value: each(func(c *corev1.Container) string { return c.Name })},
		{Name: "Images", Wide: wide, Doc: "Images referenced by each container in the template.", Value: each(func(c *corev1.Container) string { return c.Image })},
	}
}

// Count is a column with a number.
func Count[T resource.Object](name, doc string, value func(obj T) int32) resource.Column[T] {
	return resource.Column[T]{Name: name, Type: "integer", Doc: doc, Value: func(obj T) any { return int64(value(obj)) }}
}

// Wanted is a number of replicas that may be left out, which is as good as 0.
func Wanted(replicas *int32) int32 {
	if replicas == nil {
		return 0
	}
	return *replicas
}
