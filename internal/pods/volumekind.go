package pods

import v1 "k8s.io/api/core/v1"

// VolumeKind is the kind of a volume: the name of its field in VolumeSource, as manifests have it.
type VolumeKind string

// The kinds of volumes that this node has, and claims, which objects may name.
const (
	EmptyDirVolume    VolumeKind = "emptyDir"
	HostPathVolume    VolumeKind = "hostPath"
	ConfigMapVolume   VolumeKind = "configMap"
	SecretVolume      VolumeKind = "secret"
	DownwardAPIVolume VolumeKind = "downwardAPI"
	ProjectedVolume   VolumeKind = "projected"
	ImageVolume       VolumeKind = "image"
	ClaimVolume       VolumeKind = "persistentVolumeClaim"
	EphemeralVolume   VolumeKind = "ephemeral"
)

// KindOf is the kind of a volume; of several, which validation refuses, it is the first in the order of upstream's validation. Empty: it is of another kind, or
// of none, which is an emptyDir by default.
func KindOf(s *v1.VolumeSource) VolumeKind {
	switch {
	case s.EmptyDir != nil:
		return EmptyDirVolume
	case s.HostPath != nil:
		return HostPathVolume
	case s.Secret != nil:
		return SecretVolume
	case s.PersistentVolumeClaim != nil:
		return ClaimVolume
	case s.ConfigMap != nil:
		return ConfigMapVolume
	case s.DownwardAPI != nil:
		return DownwardAPIVolume
	case s.Projected != nil:
		return ProjectedVolume
	case s.Ephemeral != nil:
		return EphemeralVolume
	case s.Image != nil:
		return ImageVolume
	}
	return ""
}
