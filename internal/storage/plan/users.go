package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/ephemeral"
)

// Users are the names of the pods that use claims, by the claims' namespaces and names. Pods that have ended use none.
func Users(pods []corev1.Pod) map[string][]string {
	by := map[string][]string{}
	for i := range pods {
		p := &pods[i]
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		for j := range p.Spec.Volumes {
			claim := ""
			switch v := &p.Spec.Volumes[j]; {
			case v.PersistentVolumeClaim != nil:
				claim = v.PersistentVolumeClaim.ClaimName
			case v.Ephemeral != nil:
				claim = ephemeral.VolumeClaimName(p, v)
			}
			if key := p.Namespace + "/" + claim; claim != "" && !slices.Contains(by[key], p.Name) {
				by[key] = append(by[key], p.Name)
			}
		}
	}
	for _, names := range by {
		slices.Sort(names)
	}
	return by
}
