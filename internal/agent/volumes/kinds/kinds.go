// Package kinds are the kinds of volumes that an agent makes: one file a kind, and a table of all.
//
// A kind says what a volume is on the host. What containers get of it, where it lies, and that it goes with its pod, is package volumes' to know.
package kinds

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/pods"
)

// Config is what volumes are made from.
type Config struct {
	Objects Objects
	// HostIPs and Allocatable are what downward API volumes may tell of the node. No volume in memory is larger than the memory that can be allocated.
	HostIPs     []string
	Allocatable func() v1.ResourceList
}

// Objects gives the ConfigMaps and Secrets that volumes are written from, and tokens of service accounts.
type Objects interface {
	// ConfigMap is the config map as it was last seen; apierrors.IsNotFound where there is none. Who gets it does not change it.
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	// Secret is ConfigMap for secrets.
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	// Token is a token of the pod's service account, which holds for some time still.
	Token(ctx context.Context, pod *v1.Pod, src *v1.ServiceAccountTokenProjection) (string, error)
}

// Volume is a volume of a pod.
type Volume struct {
	Pod  *v1.Pod
	Spec *v1.Volume
	// Dir is the place for what is the pod's own. Its parent is there; what is made in it, and mounted at it, goes with the pod.
	Dir string
}

// Kind is a kind of volumes. Methods may be called again for the same volume, one call at a time.
type Kind interface {
	// Setup makes the volume; one that is there is brought up to date.
	Setup(ctx context.Context, v *Volume) error
	// Source is the path on the host of what containers get mounted; empty: the runtime mounts it.
	Source(v *Volume) string
	// Facts are what holds for all volumes of the kind.
	Facts() Facts
}

// Facts are what holds for all volumes of a kind.
type Facts struct {
	// Own: it is the pod's own, in Volume.Dir, and nobody else has anything in it.
	Own bool
	// Written: the agent writes its content, and writes it anew when that changes; containers have it read-only.
	Written bool
}

// All are the kinds by name.
func All(cfg Config) map[pods.VolumeKind]Kind {
	return map[pods.VolumeKind]Kind{
		pods.EmptyDirVolume:    &emptyDir{cfg},
		pods.HostPathVolume:    hostPath{},
		pods.ConfigMapVolume:   &written{cfg},
		pods.SecretVolume:      &written{cfg},
		pods.DownwardAPIVolume: &written{cfg},
		pods.ProjectedVolume:   &written{cfg},
		pods.ImageVolume:       image{},
	}
}

// fsGroup is the group that volumes belong to, or -1.
func fsGroup(pod *v1.Pod) int {
	if sc := pod.Spec.SecurityContext; sc != nil && sc.FSGroup != nil {
		return int(*sc.FSGroup)
	}
	return -1
}
