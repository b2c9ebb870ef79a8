// Package kinds are the kinds of volumes that an agent makes: one file a kind, and a table of all.
//
// A kind says what a volume is on the host: how it is made, kept up to date and undone. Where it lies, how a container has it, and when it goes, is package
// volumes' to know.
package kinds

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/agent/certificates"
	"monopod.dev/monopod/internal/agent/objects"
	"monopod.dev/monopod/internal/pods"
)

// Config is what volumes are made from.
type Config struct {
	// Objects are what volumes are written from, Tokens, Trust and Certificates the tokens, the authorities and the keys in them.
	Objects      objects.Reader
	Tokens       Tokens
	Trust        Trust
	Certificates Certificates
	// HostIPs and Allocatable are what downward API volumes may tell of the node. No volume in memory is larger than the memory that can be allocated.
	HostIPs     []string
	Allocatable func() v1.ResourceList
	// Node is the node as the API server told of it last: volumes of claims may be for some nodes only. Nil: nothing is known of it yet.
	Node func() *v1.Node
	// Pods are the pods that the API server has for the node, with those whose volumes are made; nil: nobody knows them.
	Pods func() []*v1.Pod
	// Tell tells of a pod's volume, as an event of the pod.
	Tell func(pod *v1.Pod, kind, reason, message string)
}

// Tokens gives tokens of service accounts.
type Tokens interface {
	// Token is a token of the pod's service account, which holds for some time still.
	Token(ctx context.Context, pod *v1.Pod, src *v1.ServiceAccountTokenProjection) (string, error)
}

// Trust gives certificates of authorities.
type Trust interface {
	// Anchors are those that a volume shows, as PEM.
	Anchors(ctx context.Context, src *v1.ClusterTrustBundleProjection) ([]byte, error)
}

// Certificates gives keys and certificates of pods.
type Certificates interface {
	// Credentials are those of a source of a volume, by its place among the volume's sources. It may wait for a signer.
	Credentials(ctx context.Context, pod *v1.Pod, volume string, index int, src *v1.PodCertificateProjection) (certificates.Credentials, error)
}

// Volume is a volume of a pod.
type Volume struct {
	Pod  *v1.Pod
	Spec *v1.Volume
	// Dir is the place for what is the pod's own. Its parent is there; what is made in it, and mounted at it, goes with the pod.
	Dir string
}

// Left is a volume of a pod of which nobody may know the specification any more.
type Left struct {
	PodUID types.UID
	Name   string
	// Dir is the volume's, which may not be there.
	Dir string
}

// Source is what containers get mounted: a path on the host, or an image, which the runtime mounts; or what they get as a device node, by its path on the host. ReadOnly:
// no container can write to it.
type Source struct {
	Path, Image, Device string
	ReadOnly            bool
}

// Kind is a kind of volumes: a file of this package that has all five, and a row of All. Of one volume there is one call at a time, of several there are many.
type Kind interface {
	// Setup makes the volume on the host, and may take long: nothing waits for it but the pod. It is called again after an error, and for a volume that is
	// there, as an agent does that was started anew: what was made stays, and is brought up to date. It ends soon after ctx does.
	Setup(ctx context.Context, v *Volume) error
	// Update brings a volume that was set up to what it shows now, while containers use it. It is called where Facts say that the kind follows something.
	Update(ctx context.Context, v *Volume) error
	// Mount says what containers get mounted of a volume that was set up. It asks nobody and changes nothing. It is an error that the volume is not there any more, where
	// a container would write to another place for it.
	Mount(v *Volume) (Source, error)
	// Teardown undoes what Setup has made, also one that failed half-way or was called by an earlier agent; nothing to undo is no error. When it has
	// succeeded nothing is mounted at Dir, which the caller removes with what is in it. It is called where Facts say that the kind holds something.
	Teardown(ctx context.Context, l *Left) error
	// Facts are what holds for all volumes of the kind.
	Facts() Facts
}

// Facts are what holds for all volumes of a kind.
type Facts struct {
	// Own: it is the pod's own, in Volume.Dir, and nobody else has anything in it.
	Own bool
	// Holds: it holds something of the host until it is torn down.
	Holds bool
	// Follows: it shows objects, or the pod, and follows their changes.
	Follows bool
}

// All are the kinds by name.
func All(cfg Config) map[pods.VolumeKind]Kind {
	servers := newNFSServers()
	ofClaim := &claim{cfg: cfg, servers: servers}
	return map[pods.VolumeKind]Kind{
		pods.EmptyDirVolume:    &emptyDir{cfg: cfg},
		pods.HostPathVolume:    hostPath{},
		pods.ConfigMapVolume:   &written{cfg: cfg},
		pods.SecretVolume:      &written{cfg: cfg},
		pods.DownwardAPIVolume: &written{cfg: cfg},
		pods.ProjectedVolume:   &written{cfg: cfg},
		pods.ImageVolume:       image{},
		pods.NFSVolume:         &nfs{servers: servers},
		pods.ClaimVolume:       ofClaim,
		pods.EphemeralVolume:   ofClaim,
	}
}

// fsGroup is the group that volumes belong to, or -1.
func fsGroup(pod *v1.Pod) int {
	if sc := pod.Spec.SecurityContext; sc != nil && sc.FSGroup != nil {
		return int(*sc.FSGroup)
	}
	return -1
}

// Unmade is the teardown of what is a directory, or something mounted at it: that of each volume whose kind nobody knows any more.
func Unmade(l *Left) error { return Unmount(l.Dir) }

// inDir is what volumes in a directory of the pod's have in common.
type inDir struct{}

// Mount implements Kind.
func (inDir) Mount(v *Volume) (Source, error) { return Source{Path: v.Dir}, nil }

// Teardown implements Kind.
func (inDir) Teardown(_ context.Context, l *Left) error { return Unmade(l) }

// still is what volumes have in common that follow nothing.
type still struct{}

// Update implements Kind.
func (still) Update(context.Context, *Volume) error { return nil }

// ofOthers is what volumes have in common that hold nothing, because somebody else has made what they are.
type ofOthers struct{ still }

// Teardown implements Kind.
func (ofOthers) Teardown(context.Context, *Left) error { return nil }
