package store

import (
	"path/filepath"
	"time"

	"github.com/containerd/containerd/v2/core/snapshots"

	"monopod.dev/monopod/internal/image/recipe"
	"monopod.dev/monopod/internal/kit/ids"
)

// What the store's databases hold, for who reads them while no store is open (package fsck).
const (
	// Namespace is containerd's: all that the store holds is in this one.
	Namespace = "monopod"
	// Snapshotter is the name of the snapshotter in the metadata, and in the labels by which a configuration refers to its unpacked layers.
	Snapshotter = "overlayfs"
	// LayersLabel on a configuration names the snapshot of the topmost layer.
	LayersLabel = "containerd.io/gc.ref.snapshot." + Snapshotter
	// DiffLabel on a snapshot is the digest of the layer's tar.
	DiffLabel = snapshots.LabelSnapshotDiffID
	// UnpackKey begins the name of a snapshot that is being filled; none outlives its process (sweepUnpacks).
	UnpackKey = "unpack-"
	// ResumeWindow is how long what an interrupted pull has brought is kept for the next one.
	ResumeWindow = time.Hour
)

// transferLabel marks the lease of a pull or a load: it holds what the operation has brought so far. Its value says what
// is transferred; bootLabel says in which boot.
const (
	transferLabel = "monopod.dev/transfer"
	bootLabel     = "monopod.dev/boot"
)

// A pin is a lease on the image's configuration, which refers to its unpacked layers. The lease's labels say whose it is.
const (
	pinImageLabel = "monopod.dev/pin.image"
	pinUserLabel  = "monopod.dev/pin.user"
)

// Lease is what a lease of the store stands for: a pin, a transfer (a pull or a load), or, when all is empty, nothing known.
type Lease struct {
	// PinnedImage is the image that PinUser has pinned.
	PinnedImage ids.ImageID
	PinUser     ids.ContainerID
	// Transfer is what is pulled or loaded; Boot the boot in which it began.
	Transfer, Boot string
}

// LeaseOf reads the labels of a lease.
func LeaseOf(labels map[string]string) Lease {
	return Lease{PinnedImage: ids.ImageID(labels[pinImageLabel]), PinUser: ids.ContainerID(labels[pinUserLabel]),
		Transfer: labels[transferLabel], Boot: labels[bootLabel]}
}

// PinID is the name of a pin's lease.
func PinID(image ids.ImageID, user ids.ContainerID) string {
	return "pin/" + string(user) + "/" + string(image)
}

// SnapshotPaths are the directory of a layer's files, and the recipe of its tar, in the store at root; id is the snapshotter's.
func SnapshotPaths(root, id string) (dir, record string) {
	dir = filepath.Join(root, "overlay", "snapshots", id, "fs")
	return dir, recipe.Path(dir)
}
