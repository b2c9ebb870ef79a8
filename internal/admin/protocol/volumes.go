package protocol

// The states of a volume.
const (
	VolumeCreating = "creating"
	VolumeReady    = "ready"
	VolumeRemoving = "removing"
	// VolumeMissing: what its record tells of is not on the disk.
	VolumeMissing = "missing"
	// VolumeStray: there is no PersistentVolume for it. It stays.
	VolumeStray = "stray"
	// VolumeUnreadable: its record cannot be read. It stays.
	VolumeUnreadable = "unreadable"
)

// Volumes are the volumes of claims that are on the node's disk.
type Volumes struct {
	// Directory is where they are.
	Directory string    `json:"directory"`
	Volumes   []Volume  `json:"volumes"`
	NotAsked  []Unknown `json:"notAsked"`
}

// Volume is the volume of a claim.
type Volume struct {
	// Name is that of the PersistentVolume.
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	Claim     string `json:"claim,omitempty"`
	// Pods are the names of those that use the claim.
	Pods  []string `json:"pods"`
	Class string   `json:"class,omitempty"`
	// State is one of VolumeReady and its like.
	State string `json:"state"`
	// Size is how many bytes the volume may hold, Used how many it does; nil: that was not found out, and Problem says why.
	Size int64  `json:"size"`
	Used *int64 `json:"used,omitempty"`
	// HeldBy is what holds the size: project, qgroup or image; none: nothing does.
	HeldBy  string `json:"heldBy,omitempty"`
	Path    string `json:"path"`
	Problem string `json:"problem,omitempty"`
	// Snapshots are the names of the snapshots that there are of it.
	Snapshots []string `json:"snapshots"`
}
