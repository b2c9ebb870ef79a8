package objects

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/pods"
)

// References are the objects that a pod's specification names.
func References(pod *v1.Pod) []Name {
	var names []Name
	add := func(k Kind, name string) {
		n := Name{k, pod.Namespace, name}
		if name != "" && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	for _, c := range pods.Containers(&pod.Spec) {
		for _, e := range c.EnvFrom {
			if e.ConfigMapRef != nil {
				add(ConfigMap, e.ConfigMapRef.Name)
			}
			if e.SecretRef != nil {
				add(Secret, e.SecretRef.Name)
			}
		}
		for _, e := range c.Env {
			if e.ValueFrom == nil {
				continue
			}
			if r := e.ValueFrom.ConfigMapKeyRef; r != nil {
				add(ConfigMap, r.Name)
			}
			if r := e.ValueFrom.SecretKeyRef; r != nil {
				add(Secret, r.Name)
			}
		}
	}
	for _, v := range pod.Spec.Volumes {
		if v.ConfigMap != nil {
			add(ConfigMap, v.ConfigMap.Name)
		}
		if v.Secret != nil {
			add(Secret, v.Secret.SecretName)
		}
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil {
				add(ConfigMap, s.ConfigMap.Name)
			}
			if s.Secret != nil {
				add(Secret, s.Secret.Name)
			}
		}
	}
	for _, s := range pod.Spec.ImagePullSecrets {
		add(Secret, s.Name)
	}
	return names
}
