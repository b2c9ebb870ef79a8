package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/pods"
)

// Users are the names of the pods that use claims, by the claims' namespaces and names. Pods that have ended use none.
func Users(all []corev1.Pod) map[string][]string {
	by := map[string][]string{}
	for i := range all {
		p := &all[i]
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, claim := range pods.Claims(p) {
			if key := claim.String(); claim.Name != "" && !slices.Contains(by[key], p.Name) {
				by[key] = append(by[key], p.Name)
			}
		}
	}
	for _, names := range by {
		slices.Sort(names)
	}
	return by
}
