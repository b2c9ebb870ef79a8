package objects

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/pods"
)

// References are the ConfigMaps and Secrets that a pod's specification names, each once.
func References(pod *v1.Pod) []Name {
	var names []Name
	for r := range pods.References(pod) {
		n := Name{Kind(r.Kind), pod.Namespace, r.Name}
		if (n.Kind == ConfigMap || n.Kind == Secret) && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}
