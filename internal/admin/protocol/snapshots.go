package protocol

import "time"

// The parameters of SnapshotsPath, RestorePath, ExportPath and ImportPath; the claim's namespace is NamespaceParam.
const (
	ClaimParam = "claim"
	// SnapshotParam is the name of a snapshot.
	SnapshotParam = "snapshot"
	// InUseParam, "true": what can be copied file by file only is copied while pods use it.
	InUseParam = "inUse"
	// ClassParam and SizeParam are the new claim's storage class and size; what is not given is as it was.
	ClassParam = "class"
	SizeParam  = "size"
)

// The trailers of the answer of ExportPath, of which one is there when the archive has come: without any it is cut short.
const (
	// ResultTrailer has an Exported, ErrorTrailer an Error, each as JSON.
	ResultTrailer = "Monopod-Result"
	ErrorTrailer  = "Monopod-Error"
)

// The states of a snapshot.
const (
	SnapshotTaking = "taking"
	SnapshotReady  = "ready"
	// SnapshotUnreadable: its record cannot be read, or is another node's. It stays.
	SnapshotUnreadable = "unreadable"
)

// Snapshots are the snapshots of volumes.
type Snapshots struct {
	Snapshots []Snapshot `json:"snapshots"`
}

// Snapshot is what the volume of a claim had at one time.
type Snapshot struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	Claim     string `json:"claim,omitempty"`
	// Volume is the name of the PersistentVolume, Class, Size and HeldBy what it was then.
	Volume string     `json:"volume,omitempty"`
	Class  string     `json:"class,omitempty"`
	Size   int64      `json:"size"`
	HeldBy string     `json:"heldBy,omitempty"`
	Block  bool       `json:"block,omitempty"`
	Taken  *time.Time `json:"taken,omitempty"`
	// AtOnce: all of it is of one moment; else its files are of different ones, if a pod wrote to them.
	AtOnce bool `json:"atOnce"`
	// State is one of SnapshotReady and its like.
	State string `json:"state"`
	// Used is how many bytes are in it, Own how many are free when it goes; nil: that was not found out, and Problem says why.
	Used    *int64 `json:"used,omitempty"`
	Own     *int64 `json:"own,omitempty"`
	Path    string `json:"path"`
	Problem string `json:"problem,omitempty"`
}

// Claim names a claim.
type Claim struct {
	Namespace string `json:"namespace"`
	Claim     string `json:"claim"`
}

// SnapshotRequest asks for a snapshot. Name may be empty.
type SnapshotRequest struct {
	Claim
	Name  string
	InUse bool
}

// CopyRequest asks for a new claim. Where Claim is empty it is that of the source, and so is what else is empty; Size is a quantity.
type CopyRequest struct {
	Claim
	Class, Size string
}

// ExportRequest asks for an archive of a claim, or of a snapshot.
type ExportRequest struct {
	Claim
	Snapshot string
	InUse    bool
}

// Copied is a new claim with its data.
type Copied struct {
	Claim
	// Volume is the name of its PersistentVolume.
	Volume string `json:"volume"`
	Class  string `json:"class"`
	Size   int64  `json:"size"`
	HeldBy string `json:"heldBy"`
	LeftOut
}

// Exported is an archive that was written.
type Exported struct {
	Entries int `json:"entries"`
	// Bytes is how many of files' content.
	Bytes int64 `json:"bytes"`
	LeftOut
}

// LeftOut are things that an archive cannot have, or a volume, with the reason. More is how many more there were.
type LeftOut struct {
	LeftOut []string `json:"leftOut"`
	More    int      `json:"more,omitempty"`
}
