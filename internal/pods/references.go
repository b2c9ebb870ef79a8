package pods

import (
	"iter"

	v1 "k8s.io/api/core/v1"
)

// ReferenceKind is the kind of an object that a pod refers to, by the name of its resource.
type ReferenceKind string

// The kinds.
const (
	ConfigMap ReferenceKind = "configmaps"
	Secret    ReferenceKind = "secrets"
	Claim     ReferenceKind = "persistentvolumeclaims"
)

// Reference is an object in the pod's namespace.
type Reference struct {
	Kind ReferenceKind
	Name string
}

// References are the objects that a pod's specification names and whose content its node is to read, in the order of the specification: environments,
// volumes, pull secrets. One that is named twice comes twice. (Its service account is no such object: a node asks for tokens.)
func References(pod *v1.Pod) iter.Seq[Reference] {
	return func(yield func(Reference) bool) {
		spec := &pod.Spec
		for _, c := range Containers(spec) {
			if !ofEnvironment(c, yield) {
				return
			}
		}
		for i := range spec.Volumes {
			if !ofVolume(pod.Name, &spec.Volumes[i], yield) {
				return
			}
		}
		for _, s := range spec.ImagePullSecrets {
			if s.Name != "" && !yield(Reference{Secret, s.Name}) {
				return
			}
		}
	}
}

func ofEnvironment(c *v1.Container, yield func(Reference) bool) bool {
	for _, e := range c.EnvFrom {
		if e.ConfigMapRef != nil && e.ConfigMapRef.Name != "" && !yield(Reference{ConfigMap, e.ConfigMapRef.Name}) ||
			e.SecretRef != nil && e.SecretRef.Name != "" && !yield(Reference{Secret, e.SecretRef.Name}) {
			return false
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			continue
		}
		if r := e.ValueFrom.ConfigMapKeyRef; r != nil && r.Name != "" && !yield(Reference{ConfigMap, r.Name}) {
			return false
		}
		if r := e.ValueFrom.SecretKeyRef; r != nil && r.Name != "" && !yield(Reference{Secret, r.Name}) {
			return false
		}
	}
	return true
}

func ofVolume(pod string, v *v1.Volume, yield func(Reference) bool) bool {
	switch KindOf(&v.VolumeSource) {
	case ConfigMapVolume:
		return v.ConfigMap.Name == "" || yield(Reference{ConfigMap, v.ConfigMap.Name})
	case SecretVolume:
		return v.Secret.SecretName == "" || yield(Reference{Secret, v.Secret.SecretName})
	case ClaimVolume:
		return yield(Reference{Claim, v.PersistentVolumeClaim.ClaimName})
	case EphemeralVolume:
		return yield(Reference{Claim, pod + "-" + v.Name}) // core/v1, EphemeralVolumeSource
	case ProjectedVolume:
		return ofProjected(v.Projected, yield)
	}
	return true
}

func ofProjected(p *v1.ProjectedVolumeSource, yield func(Reference) bool) bool {
	for _, s := range p.Sources {
		if s.ConfigMap != nil && s.ConfigMap.Name != "" && !yield(Reference{ConfigMap, s.ConfigMap.Name}) ||
			s.Secret != nil && s.Secret.Name != "" && !yield(Reference{Secret, s.Secret.Name}) {
			return false
		}
	}
	return true
}
