package objects

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/pods"
)

// References are the objects that a pod's specification names, of the kinds that are followed, each once.
func References(pod *v1.Pod) []Name {
	var names []Name
	for r := range pods.References(pod) {
		n := Name{r.Kind, pod.Namespace, r.Name}
		if kinds[n.Kind].follow != nil && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}
