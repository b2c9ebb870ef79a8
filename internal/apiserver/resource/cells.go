package resource

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ContainerCells are the names of a template's containers and their images, as the tables of what makes pods have them.
func ContainerCells(spec *corev1.PodSpec) (names, images string) {
	all := make([]string, 0, 2*len(spec.Containers))
	for i := range spec.Containers {
		all = append(all, spec.Containers[i].Name)
	}
	for i := range spec.Containers {
		all = append(all, spec.Containers[i].Image)
	}
	return strings.Join(all[:len(spec.Containers)], ","), strings.Join(all[len(spec.Containers):], ",")
}
