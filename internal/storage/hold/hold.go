// Package hold makes what pods get of a volume, so that it holds as much as the volume's size says, and says how much is used. Each way of it is a Holder:
//
//	plain    a directory, whose size nothing holds
package hold

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/atomicfile"
	"monopod.dev/monopod/internal/storage/plan"
)

// Volume is one volume of a Holder.
type Volume struct {
	// Dir is its directory, Data what pods get of it.
	Dir, Data string
	// Size is how many bytes it is to hold.
	Size int64
	// Block: Data is a block device.
	Block bool
}

// Usage is how much of a volume is used, in bytes.
type Usage struct{ Used, Size int64 }

// Holder makes volumes whose size is held in one way. Calls for one volume come one after the other; each may be repeated after a crash, and completes what an
// earlier one has begun.
type Holder interface {
	// Make makes Data. Nobody has had the volume yet.
	Make(ctx context.Context, v Volume) error
	// Attach has Data there after a start of the machine, and holds the size. A volume that cannot be had is an error, and nothing of it is made anew.
	Attach(ctx context.Context, v Volume) error
	// Resize raises what the volume holds to its Size, while pods have it.
	Resize(ctx context.Context, v Volume) error
	// Detach takes away what keeps the directory from being removed, and all that would outlive it. Nobody has the volume any more.
	Detach(ctx context.Context, v Volume) error
	// Usage says how full it is; errdefs.ErrNotImplemented: that takes a walk over all of its files.
	Usage(v Volume) (Usage, error)
}

// dataMode lets programs of every user write, as volumes of a node's own directories have it: who a pod's programs run as is the image's choice, and nobody
// gets to the directory but by a pod that has the claim. Where a pod says fsGroup, its agent narrows it.
const dataMode = 0o777

// Holders are the ways in which sizes are held in a directory.
type Holders struct {
	dir string
}

// New returns the ways in which sizes of volumes below dir are held, which need not be there yet.
func New(dir string) *Holders { return &Holders{dir: dir} }

// Choose says what holds the size of a new volume.
func (h *Holders) Choose(want plan.Isolation, block bool) (plan.Hold, error) {
	switch {
	case block || want == plan.Image:
		return "", fmt.Errorf("images are not made by this version: %w", errdefs.ErrNotImplemented)
	case want == plan.Quota:
		return "", fmt.Errorf("the file system of %s has no quotas that are switched on; name a directory of one that has with storage.directory, or use a class with isolation: image", h.dir)
	}
	return plan.Nothing, nil
}

// Of is what holds in one way.
func (h *Holders) Of(kind plan.Hold) (Holder, error) {
	if kind == plan.Nothing {
		return plain{}, nil
	}
	return nil, fmt.Errorf("volumes whose size is held by %s are not known here: %w", kind, errdefs.ErrNotImplemented)
}

// Why says why nothing holds the size of a volume.
func (h *Holders) Why(want plan.Isolation) string {
	if want == plan.Unlimited {
		return "its class has isolation: none"
	}
	return fmt.Sprintf("the file system of %s has no quotas that are switched on, and its class does not have isolation: image", h.dir)
}

// Room is what the file system of a directory has, in bytes. A directory that is not there yet has that of the one it will be in.
func (h *Holders) Room() (free, total int64, err error) {
	for dir := h.dir; ; dir = filepath.Dir(dir) {
		var st unix.Statfs_t
		err := unix.Statfs(dir, &st)
		if errors.Is(err, unix.ENOENT) && dir != "/" {
			continue
		}
		if err != nil {
			return 0, 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
		}
		return int64(st.Bavail) * st.Bsize, int64(st.Blocks) * st.Bsize, nil
	}
}

// plain holds nothing.
type plain struct{}

func (plain) Make(_ context.Context, v Volume) error {
	if err := os.Mkdir(v.Data, dataMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Chmod(v.Data, dataMode); err != nil { // whatever the umask
		return err
	}
	return atomicfile.SyncDir(v.Dir)
}

func (plain) Attach(_ context.Context, v Volume) error {
	_, err := os.Lstat(v.Data)
	return err
}

func (plain) Resize(context.Context, Volume) error { return nil }
func (plain) Detach(context.Context, Volume) error { return nil }

func (plain) Usage(v Volume) (Usage, error) {
	return Usage{Size: v.Size}, fmt.Errorf("use of a directory without a quota: %w", errdefs.ErrNotImplemented)
}
