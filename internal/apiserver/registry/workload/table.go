package workload

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/apiserver/resource"
)

// ContainerColumns tell of the containers of a template, which may be nil.
func ContainerColumns[T resource.Object](wide bool, template func(obj T) *corev1.PodTemplateSpec) []resource.Column[T] {
	cell := func(which int) func(T) any {
		return func(obj T) any { return ContainerCells(template(obj))[which] }
	}
	return []resource.Column[T]{
		{Name: "Containers", Wide: wide, Doc: "Names of each container in the template.", Value: cell(0)},
		{Name: "Images", Wide: wide, Doc: "Images referenced by each container in the template.", Value: cell(1)},
	}
}

// ContainerCells are the cells of ContainerColumns, for a table whose rows are made as a whole.
func ContainerCells(template *corev1.PodTemplateSpec) [2]string {
	var names, images []string
	if template != nil {
		for i := range template.Spec.Containers {
			names = append(names, template.Spec.Containers[i].Name)
			images = append(images, template.Spec.Containers[i].Image)
		}
	}
	return [2]string{strings.Join(names, ","), strings.Join(images, ",")}
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
