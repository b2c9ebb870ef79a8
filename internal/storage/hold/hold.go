// Package hold makes what pods get of a volume, so that it holds as much as the volume's size says, and says how much is used. Each way of it is a Holder:
//
//	plain    a directory, whose size nothing holds
//	project  a directory that is a project of ext4 or xfs, with a quota
//	qgroup   a subvolume of btrfs, with a quota
//	image    a file of the size, with a file system in it or as a block device
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

	"monopod.dev/monopod/internal/host/quota"
	"monopod.dev/monopod/internal/host/tree"
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
	// QuotaID is the project's, of volumes that are projects.
	QuotaID uint32
	// Owed is how many bytes of the disk other images may come to need, whose blocks snapshots have as well. It is not taken into account but where room is reserved.
	Owed int64
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
	// Detach takes off the machine what the volume has there beside its files, which all stay. Nobody has the volume any more.
	Detach(ctx context.Context, v Volume) error
	// Discard removes what would outlive the volume's directory, or keep it from being removed, after Detach: all that is in the volume goes.
	Discard(ctx context.Context, v Volume) error
	// Usage says how full it is. A holder that does not count walks over all files, as long as ctx lets it.
	Usage(ctx context.Context, v Volume) (Usage, error)
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
	if block || want == plan.Image {
		return plan.File, image{}.tools(block)
	}
	if want == plan.Unlimited {
		return plan.Nothing, nil
	}
	switch kind := quota.Of(h.there()); {
	case kind == quota.Project:
		return plan.Project, nil
	case kind == quota.Group:
		return plan.Qgroup, nil
	case want == plan.Quota:
		return "", fmt.Errorf("the file system of %s has no quotas that are switched on: switch them on (STORAGE.md says how), or use a class with isolation: image", h.dir)
	}
	return plan.Nothing, nil
}

// Least is the smallest size that a volume can have.
func (h *Holders) Least(kind plan.Hold, block bool) int64 {
	if kind == plan.File && !block {
		return leastImage
	}
	return 0
}

// Free says whether no file is of a project yet, so that a new volume may be it.
func (h *Holders) Free(quotaID uint32) bool { return quota.ProjectFree(h.there(), quotaID) }

// Of is what holds in one way.
func (h *Holders) Of(kind plan.Hold) (Holder, error) {
	switch kind {
	case plan.Nothing:
		return plain{}, nil
	case plan.Project:
		return project{}, nil
	case plan.Qgroup:
		return qgroup{}, nil
	case plan.File:
		return image{}, nil
	}
	return nil, fmt.Errorf("volumes whose size is held by %s are not known here: %w", kind, errdefs.ErrNotImplemented)
}

// there is the directory of the volumes, or the nearest one above it that is there.
func (h *Holders) there() string {
	dir := h.dir
	for dir != "/" {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

// Why says why nothing holds the size of a volume.
func (h *Holders) Why(want plan.Isolation) string {
	if want == plan.Unlimited {
		return "its class has isolation: none"
	}
	return fmt.Sprintf("the file system of %s has no quotas that are switched on, and its class does not have isolation: image", h.dir)
}

// Room is what the file system of the directory has, in bytes.
func (h *Holders) Room() (free, total int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(h.there(), &st); err != nil {
		return 0, 0, &os.PathError{Op: "statfs", Path: h.there(), Err: err}
	}
	return int64(st.Bavail) * st.Bsize, int64(st.Blocks) * st.Bsize, nil
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

func (plain) Resize(context.Context, Volume) error  { return nil }
func (plain) Detach(context.Context, Volume) error  { return nil }
func (plain) Discard(context.Context, Volume) error { return nil }

func (plain) Usage(ctx context.Context, v Volume) (Usage, error) {
	d, err := os.Open(v.Data)
	if err != nil {
		return Usage{}, err
	}
	defer d.Close()
	c := counting{ctx: ctx, linked: map[uint64]bool{}}
	err = tree.Walk(int(d.Fd()), &c)
	return Usage{Used: c.bytes, Size: v.Size}, err
}

// counting counts what files take on the disk, one with several names once.
type counting struct {
	ctx    context.Context
	bytes  int64
	linked map[uint64]bool
}

// Pause implements tree.Visitor.
func (c *counting) Pause() error { return c.ctx.Err() }

// Visit implements tree.Visitor.
func (c *counting) Visit(_ string, _ int, st *unix.Stat_t) bool {
	directory := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if !directory && st.Nlink > 1 {
		if c.linked[st.Ino] {
			return false
		}
		c.linked[st.Ino] = true
	}
	c.bytes += st.Blocks * 512
	return directory
}
