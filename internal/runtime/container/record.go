package container

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/ocispec"
	"monopod.dev/monopod/internal/runtime/records"
)

// Version is the version of the records that this code writes (records.CheckVersion). testdata has records of each.
const Version = 1

// Record is what is known of a container, and what is stored (table "containers", JSON). Its state is derived from the
// facts:
//
//	(none) --Create--> creating --> CREATED --Start--> RUNNING --exit--> EXITED --Remove--> removing --> (none)
//	                      |            |                                    ^
//	                      |            +--- the program cannot be executed --+
//	                      +---- Create fails: undone
//
// creating: CreatedAt is zero. removing: Removing is set. A crash leaves such records for recovery to undo or finish; clients
// do not see them.
type Record struct {
	ID        ids.ContainerID                     `json:"id"`
	SandboxID ids.SandboxID                       `json:"sandboxID"`
	Stored    records.Proto[*cri.ContainerConfig] `json:"config"`
	BootID    string                              `json:"bootID"`
	// ReservedAt is when Create began, CreatedAt when it succeeded.
	ReservedAt time.Time `json:"reservedAt"`
	CreatedAt  time.Time `json:"createdAt,omitzero"`
	StartedAt  time.Time `json:"startedAt,omitzero"`
	// Exit is how the container ended; nil before.
	Exit     *protocol.Exit `json:"exit,omitempty"`
	Removing bool           `json:"removing,omitempty"`
	// ImageRef is the reference by which clients know the image.
	ImageID  ids.ImageID `json:"imageID,omitempty"`
	ImageRef string      `json:"imageRef,omitempty"`
	// ImageVolumes are the images that mounts show.
	ImageVolumes []ImageVolume `json:"imageVolumes,omitempty"`

	LogPath string `json:"logPath,omitempty"` // absolute; empty: no log
	// StopSignal is the signal that asks the container to end.
	StopSignal int `json:"stopSignal,omitempty"`
	// SELinux are the labels of the container and of its files.
	SELinux ocispec.SELinuxLabels `json:"selinux,omitzero"`
	// Updated are the resources that hold since an update; nil: those of the configuration. Pending are those of an update
	// that was begun: whether the container has them yet is not known, and recovery gives it them.
	Updated *records.Proto[*cri.LinuxContainerResources] `json:"updated,omitempty"`
	Pending *records.Proto[*cri.LinuxContainerResources] `json:"pending,omitempty"`

	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}

// MarshalJSON implements json.Marshaler: a record is written with the version of its format.
func (r Record) MarshalJSON() ([]byte, error) {
	type plain Record
	return json.Marshal(struct {
		Version int `json:"version"`
		plain
	}{Version, plain(r)})
}

// UnmarshalJSON implements json.Unmarshaler. A record of a newer version is a *records.VersionError.
func (r *Record) UnmarshalJSON(raw []byte) error {
	if err := records.CheckVersion(raw, Version); err != nil {
		return err
	}
	type plain Record
	return json.Unmarshal(raw, (*plain)(r))
}

// Resources are what the container is limited to, as clients have asked for it; nil: nothing. It is not to be changed.
func (r *Record) Resources() *cri.LinuxContainerResources {
	if r.Updated != nil {
		return r.Updated.Message
	}
	return r.Config().GetLinux().GetResources()
}

// Visible says that clients may know of the container.
func (r *Record) Visible() bool { return !r.CreatedAt.IsZero() && !r.Removing }

// State is the state that CRI knows.
func (r *Record) State() cri.ContainerState {
	switch {
	case r.Exit != nil:
		return cri.ContainerState_CONTAINER_EXITED
	case !r.StartedAt.IsZero():
		return cri.ContainerState_CONTAINER_RUNNING
	default:
		return cri.ContainerState_CONTAINER_CREATED
	}
}

// Reason is the word for how the container ended, as clients know it.
func (r *Record) Reason() string {
	switch {
	case r.Exit == nil:
		return ""
	case r.Exit.OOMKilled && r.Exit.Code != 0:
		return "OOMKilled"
	case r.Exit.Reason != "":
		return r.Exit.Reason
	case r.Exit.Code == 0:
		return "Completed"
	default:
		return "Error"
	}
}

// Config is the configuration that the client gave. It is not to be changed.
func (r *Record) Config() *cri.ContainerConfig { return r.Stored.Message }

// ImageVolume is an image that one of a container's mounts shows. What a tag means may change while the container lives: this
// is what it meant when the container was created.
type ImageVolume struct {
	// Mount is the index among the configuration's mounts.
	Mount int `json:"mount"`
	// ImageID is also what PullImage has returned and what clients compare with.
	ImageID ids.ImageID `json:"imageID"`
}

// Images are all images that the container holds, each once.
func (r *Record) Images() []ids.ImageID {
	var all []ids.ImageID
	if r.ImageID != "" {
		all = append(all, r.ImageID)
	}
	for _, v := range r.ImageVolumes {
		all = append(all, v.ImageID)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Mounts are the mounts as clients asked for them; those of images tell which image it is.
func (r *Record) Mounts() []*cri.Mount {
	mounts := r.Config().GetMounts()
	if len(r.ImageVolumes) == 0 {
		return mounts
	}
	mounts = slices.Clone(mounts)
	for _, v := range r.ImageVolumes {
		if v.Mount >= len(mounts) {
			continue // a record that somebody has edited
		}
		asked := mounts[v.Mount]
		image := &cri.ImageSpec{Image: asked.GetImage().GetImage(), Annotations: asked.GetImage().GetAnnotations(),
			UserSpecifiedImage: asked.GetImage().GetUserSpecifiedImage(), RuntimeHandler: asked.GetImage().GetRuntimeHandler(), ImageRef: string(v.ImageID)}
		mounts[v.Mount] = &cri.Mount{ContainerPath: asked.GetContainerPath(), HostPath: asked.GetHostPath(), Readonly: asked.GetReadonly(),
			SelinuxRelabel: asked.GetSelinuxRelabel(), Propagation: asked.GetPropagation(), UidMappings: asked.GetUidMappings(), GidMappings: asked.GetGidMappings(),
			RecursiveReadOnly: asked.GetRecursiveReadOnly(), Image: image, ImageSubPath: asked.GetImageSubPath(), MountOptions: asked.GetMountOptions()}
	}
	return mounts
}

// Name is what makes a container unique within its sandbox (ContainerMetadata).
func Name(md *cri.ContainerMetadata) string {
	return fmt.Sprintf("%s_%d", md.GetName(), md.GetAttempt())
}
