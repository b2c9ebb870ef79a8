package quota

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/ioctl"
)

// Numbers of calls that golang.org/x/sys/unix lacks, of linux/btrfs.h.
const (
	btrfsIocSubvolCreate = 0x5000940e
	btrfsIocSnapDestroy  = 0x5000940f
	btrfsIocInoLookup    = 0xd0009412
	btrfsIocFSInfo       = 0x8400941f
	btrfsIocQgroupCreate = 0x4010942a
	btrfsIocQgroupLimit  = 0x8030942b
)

// subvolumeInode is the inode number of the root of each subvolume (BTRFS_FIRST_FREE_OBJECTID).
const subvolumeInode = 256

// volArgs are the arguments of calls about subvolumes (struct btrfs_ioctl_vol_args).
type volArgs struct {
	_    int64
	name [4088]byte
}

// inoLookup asks which subvolume a file is in (struct btrfs_ioctl_ino_lookup_args).
type inoLookup struct {
	tree, object uint64
	_            [4080]byte
}

// fsInfo is what a btrfs is (struct btrfs_ioctl_fs_info_args).
type fsInfo struct {
	_    [2]uint64
	fsid [16]byte
	_    [992]byte
}

// groupLimit sets the limits of a quota group (struct btrfs_ioctl_qgroup_limit_args). Group 0 is that of the subvolume that the file is in.
type groupLimit struct {
	_                             uint64
	flags, maxReferenced, _, _, _ uint64
}

// groupLimitReferenced is the flag of maxReferenced.
const groupLimitReferenced = 1

// groupCreate removes a quota group (struct btrfs_ioctl_qgroup_create_args, whose field create is 0).
type groupCreate struct{ _, group uint64 }

// groupsOf is the kernel's folder of the quota groups of the btrfs that an open file is in. It is there as long as quotas are switched on.
func groupsOf(f *os.File) (string, error) {
	var info fsInfo
	if err := ioctl.Call(f.Fd(), btrfsIocFSInfo, &info); err != nil {
		return "", err
	}
	id := hex.EncodeToString(info.fsid[:])
	uuid := strings.Join([]string{id[:8], id[8:12], id[12:16], id[16:20], id[20:]}, "-")
	dir := filepath.Join("/sys/fs/btrfs", uuid, "qgroups")
	_, err := os.Stat(dir)
	return dir, err
}

// hasGroups says whether a directory is on a btrfs with quotas that are switched on.
func hasGroups(dir string) bool {
	d, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer d.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(d.Fd()), &st); err != nil || st.Type != unix.BTRFS_SUPER_MAGIC {
		return false
	}
	_, err = groupsOf(d)
	return err == nil
}

// MakeSubvolume makes a directory that is a subvolume. One that is there is left as it is.
func MakeSubvolume(path string) error {
	err := inParent(path, btrfsIocSubvolCreate)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the subvolume %s: %w", path, err)
	}
	return nil
}

// inParent is a call about a subvolume by its name in the directory that it is in.
func inParent(path string, request uint) error {
	parent, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer parent.Close()
	var args volArgs
	copy(args.name[:len(args.name)-1], filepath.Base(path))
	return ioctl.Call(parent.Fd(), request, &args)
}

// openSubvolume opens a directory, which must be a subvolume.
func openSubvolume(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Ino != subvolumeInode {
		f.Close()
		return nil, errors.Join(err, fmt.Errorf("%s is no subvolume of btrfs, so that nothing holds its size", path))
	}
	return f, nil
}

// LimitSubvolume has a subvolume refer to so many bytes at most, its own files' and those of its tree.
func LimitSubvolume(path string, size int64) error {
	f, err := openSubvolume(path)
	if err != nil {
		return err
	}
	defer f.Close()
	limit := groupLimit{flags: groupLimitReferenced, maxReferenced: uint64(size)} // it is not negative
	if err := ioctl.Call(f.Fd(), btrfsIocQgroupLimit, &limit); err != nil {
		return fmt.Errorf("limit the quota group of %s (are quotas switched on? btrfs quota enable %s): %w", path, filepath.Dir(path), err)
	}
	return nil
}

// SubvolumeUsed is what a subvolume refers to.
func SubvolumeUsed(path string) (Used, error) {
	f, err := openSubvolume(path)
	if err != nil {
		return Used{}, err
	}
	defer f.Close()
	used, err := groupNumber(f, "referenced")
	return Used{Bytes: used}, err
}

// groupNumber is a number of the quota group of the subvolume that an open file is in.
func groupNumber(f *os.File, name string) (uint64, error) {
	groups, err := groupsOf(f)
	if err != nil {
		return 0, err
	}
	id, err := subvolume(f)
	if err != nil {
		return 0, err
	}
	raw, err := os.ReadFile(filepath.Join(groups, fmt.Sprintf("0_%d", id), name))
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 64)
}

// subvolume is the id of the subvolume that an open file is in, which is that of its quota group.
func subvolume(f *os.File) (uint64, error) {
	ask := inoLookup{object: subvolumeInode}
	err := ioctl.Call(f.Fd(), btrfsIocInoLookup, &ask)
	return ask.tree, err
}

// RemoveSubvolume removes a subvolume with all that is in it at once, and its group, where no other subvolume is in it and nothing is mounted there. One that cannot be removed so stays for
// who removes its files; what is no subvolume is left as it is.
func RemoveSubvolume(path string) error {
	f, err := openSubvolume(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	id, err := subvolume(f)
	if err != nil {
		return err
	}
	if err := inParent(path, btrfsIocSnapDestroy); err != nil {
		return nil
	}
	parent, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer parent.Close()
	// Newer kernels remove it themselves, when the subvolume's files are gone.
	_ = ioctl.Call(parent.Fd(), btrfsIocQgroupCreate, &groupCreate{group: id})
	return nil
}
