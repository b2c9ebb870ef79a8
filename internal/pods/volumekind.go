package pods

import (
	"iter"

	v1 "k8s.io/api/core/v1"
)

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
	NFSVolume         VolumeKind = "nfs"
	ClaimVolume       VolumeKind = "persistentVolumeClaim"
	EphemeralVolume   VolumeKind = "ephemeral"
)

// volumeKinds say which sources a volume has, in the order of upstream's validation.
var volumeKinds = []struct {
	kind  VolumeKind
	given func(s *v1.VolumeSource) bool
}{
	{EmptyDirVolume, func(s *v1.VolumeSource) bool { return s.EmptyDir != nil }},
	{HostPathVolume, func(s *v1.VolumeSource) bool { return s.HostPath != nil }},
	{SecretVolume, func(s *v1.VolumeSource) bool { return s.Secret != nil }},
	{NFSVolume, func(s *v1.VolumeSource) bool { return s.NFS != nil }},
	{ClaimVolume, func(s *v1.VolumeSource) bool { return s.PersistentVolumeClaim != nil }},
	{ConfigMapVolume, func(s *v1.VolumeSource) bool { return s.ConfigMap != nil }},
	{DownwardAPIVolume, func(s *v1.VolumeSource) bool { return s.DownwardAPI != nil }},
	{ProjectedVolume, func(s *v1.VolumeSource) bool { return s.Projected != nil }},
	{EphemeralVolume, func(s *v1.VolumeSource) bool { return s.Ephemeral != nil }},
	{ImageVolume, func(s *v1.VolumeSource) bool { return s.Image != nil }},
}

// KindsOf are all the kinds that a volume says it is of, in the order of upstream's validation, which lets there be one.
func KindsOf(s *v1.VolumeSource) iter.Seq[VolumeKind] {
	return func(yield func(VolumeKind) bool) {
		for i := range volumeKinds {
			if volumeKinds[i].given(s) && !yield(volumeKinds[i].kind) {
				return
			}
		}
	}
}

// KindOf is the kind of a volume: the first of KindsOf. Empty: it is of another kind, or of none, which is an emptyDir by default.
func KindOf(s *v1.VolumeSource) VolumeKind {
	for i := range volumeKinds {
		if volumeKinds[i].given(s) {
			return volumeKinds[i].kind
		}
	}
	return ""
}
