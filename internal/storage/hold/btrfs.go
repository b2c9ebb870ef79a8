package hold

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/atomicfile"
)

// qgroup keeps a volume in a subvolume of btrfs, whose quota group holds what it may refer to.
type qgroup struct{}

// qgroupsOf is the kernel's folder of the quota groups of the btrfs that an open file is in. It is there as long as quotas are switched on.
func qgroupsOf(fd int) (string, error) {
	var info fsInfo
	if err := ioctl(fd, btrfsIocFSInfo, &info); err != nil {
		return "", err
	}
	id := hex.EncodeToString(info.fsid[:])
	uuid := strings.Join([]string{id[:8], id[8:12], id[12:16], id[16:20], id[20:]}, "-")
	dir := filepath.Join("/sys/fs/btrfs", uuid, "qgroups")
	_, err := os.Stat(dir)
	return dir, err
}

// hasQgroups says whether a directory is on a btrfs with quotas that are switched on.
func hasQgroups(dir string) bool {
	d, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer d.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(d.Fd()), &st); err != nil || st.Type != unix.BTRFS_SUPER_MAGIC {
		return false
	}
	_, err = qgroupsOf(int(d.Fd()))
	return err == nil
}

func (q qgroup) Make(ctx context.Context, v Volume) error {
	d, err := os.Open(v.Dir)
	if err != nil {
		return err
	}
	defer d.Close()
	var args volArgs
	copy(args.name[:], filepath.Base(v.Data))
	if err := ioctl(int(d.Fd()), btrfsIocSubvolCreate, &args); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the subvolume %s: %w", v.Data, err)
	}
	if err := os.Chmod(v.Data, dataMode); err != nil {
		return err
	}
	if err := q.Resize(ctx, v); err != nil {
		return err
	}
	return atomicfile.SyncDir(v.Dir)
}

// open opens Data, which must be a subvolume.
func (qgroup) open(v Volume) (*os.File, error) {
	f, err := os.Open(v.Data)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Ino != subvolumeInode {
		f.Close()
		return nil, errors.Join(err, fmt.Errorf("%s is no subvolume of btrfs, so that nothing holds its size", v.Data))
	}
	return f, nil
}

func (q qgroup) Attach(ctx context.Context, v Volume) error { return q.Resize(ctx, v) }

func (q qgroup) Resize(_ context.Context, v Volume) error {
	f, err := q.open(v)
	if err != nil {
		return err
	}
	defer f.Close()
	limit := qgroupLimit{flags: qgroupLimitReferenced, maxReferenced: uint64(v.Size)} // it is not negative
	if err := ioctl(int(f.Fd()), btrfsIocQgroupLimit, &limit); err != nil {
		return fmt.Errorf("limit the quota group of %s (are quotas switched on? btrfs quota enable %s): %w", v.Data, v.Dir, err)
	}
	return nil
}

func (qgroup) Detach(context.Context, Volume) error { return nil }

// Discard removes the subvolume at once, where there is no other one in it, and the group with it. What stays goes with the directory.
func (q qgroup) Discard(_ context.Context, v Volume) error {
	f, err := q.open(v)
	if err != nil {
		return nil
	}
	id, err := subvolume(int(f.Fd()))
	f.Close()
	if err != nil {
		return err
	}
	d, err := os.Open(v.Dir)
	if err != nil {
		return err
	}
	defer d.Close()
	var args volArgs
	copy(args.name[:], filepath.Base(v.Data))
	if err := ioctl(int(d.Fd()), btrfsIocSnapDestroy, &args); err != nil {
		return nil
	}
	// Newer kernels remove it themselves, when the subvolume's files are gone.
	_ = ioctl(int(d.Fd()), btrfsIocQgroupCreate, &qgroupCreate{group: id})
	return nil
}

// subvolume is the id of the subvolume that an open file is in, which is that of its quota group.
func subvolume(fd int) (uint64, error) {
	ask := inoLookup{object: subvolumeInode}
	err := ioctl(fd, btrfsIocInoLookup, &ask)
	return ask.tree, err
}

func (q qgroup) Usage(_ context.Context, v Volume) (Usage, error) {
	f, err := q.open(v)
	if err != nil {
		return Usage{}, err
	}
	defer f.Close()
	groups, err := qgroupsOf(int(f.Fd()))
	if err != nil {
		return Usage{}, err
	}
	id, err := subvolume(int(f.Fd()))
	if err != nil {
		return Usage{}, err
	}
	raw, err := os.ReadFile(filepath.Join(groups, fmt.Sprintf("0_%d", id), "referenced"))
	if err != nil {
		return Usage{}, err
	}
	used, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
	return Usage{Used: used, Size: v.Size}, err
}
