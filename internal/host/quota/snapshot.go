package quota

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/ioctl"
)

const btrfsIocSnapCreate = 0x50009417

// snapArgs are the arguments of a snapshot (struct btrfs_ioctl_vol_args_v2).
type snapArgs struct {
	fd, _, flags uint64
	_            [4]uint64
	name         [4040]byte
}

// snapReadOnly: nobody can change the snapshot (BTRFS_SUBVOL_RDONLY).
const snapReadOnly = 1 << 1

// SnapshotSubvolume makes a subvolume that has what another one has at one moment. It has a quota group of its own, without a limit. What other subvolumes are in the
// first is not in it.
func SnapshotSubvolume(from, to string, readOnly bool) error {
	f, err := openSubvolume(from)
	if err != nil {
		return err
	}
	defer f.Close()
	parent, err := os.Open(filepath.Dir(to))
	if err != nil {
		return err
	}
	defer parent.Close()
	args := snapArgs{fd: uint64(f.Fd())}
	if readOnly {
		args.flags = snapReadOnly
	}
	copy(args.name[:len(args.name)-1], filepath.Base(to))
	if err := ioctl.Call(parent.Fd(), btrfsIocSnapCreate, &args); err != nil {
		return fmt.Errorf("snapshot of the subvolume %s: %w", from, err)
	}
	return nil
}

// SubvolumeOwn is what a subvolume refers to, and how much of that nothing else does: what is free when it is removed.
func SubvolumeOwn(path string) (all Used, own uint64, err error) {
	f, err := openSubvolume(path)
	if err != nil {
		return Used{}, 0, err
	}
	defer f.Close()
	if all.Bytes, err = groupNumber(f, "referenced"); err == nil {
		own, err = groupNumber(f, "exclusive")
	}
	return all, own, err
}

// IsSubvolume says whether a path is a subvolume of btrfs.
func IsSubvolume(path string) (bool, error) {
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err := unix.Lstat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Ino != subvolumeInode {
		return false, err
	}
	err := unix.Statfs(path, &fs)
	return err == nil && fs.Type == unix.BTRFS_SUPER_MAGIC, err
}
