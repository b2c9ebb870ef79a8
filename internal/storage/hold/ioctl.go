package hold

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Numbers and forms of calls that golang.org/x/sys/unix lacks, of linux/btrfs.h, linux/fs.h, linux/quota.h, linux/dqblk_xfs.h and fs/ext4.
const (
	ext4IocResizeFS = 0x40086610

	btrfsIocSubvolCreate = 0x5000940e
	btrfsIocSnapDestroy  = 0x5000940f
	btrfsIocInoLookup    = 0xd0009412
	btrfsIocFSInfo       = 0x8400941f
	btrfsIocQgroupCreate = 0x4010942a
	btrfsIocQgroupLimit  = 0x8030942b

	fsIocGetXattr = 0x801c581f
	fsIocSetXattr = 0x401c5820

	projectQuota = 2
	qGetQuota    = 0x800007
	qSetQuota    = 0x800008
	qXGetQstat   = 'X'<<8 + 5
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

// qgroupLimit sets the limits of a quota group (struct btrfs_ioctl_qgroup_limit_args). Group 0 is that of the subvolume that the file is in.
type qgroupLimit struct {
	_                             uint64
	flags, maxReferenced, _, _, _ uint64
}

// qgroupLimitReferenced is the flag of maxReferenced.
const qgroupLimitReferenced = 1

// qgroupCreate removes a quota group (struct btrfs_ioctl_qgroup_create_args, whose field create is 0).
type qgroupCreate struct{ _, group uint64 }

// fsXattr is what a file inherits to others (struct fsxattr).
type fsXattr struct {
	flags, _, _, project, _ uint32
	_                       [8]byte
}

// projectInherits: new files in the directory are of its project (FS_XFLAG_PROJINHERIT).
const projectInherits = 0x200

// diskQuota is the quota of an id (struct if_dqblk). Limits are of 1024 bytes each, the space of one.
type diskQuota struct {
	hard, _, space uint64
	_, _, _, _, _  uint64
	valid          uint32
	_              uint32
}

// quotaLimits: hard and soft are set (QIF_BLIMITS).
const quotaLimits = 1

// quotaStat says which quotas a file system has (struct fs_quota_stat).
type quotaStat struct {
	_     int8
	flags uint16
	_     int8
	_     [80]byte
}

// projectCounted and projectHeld: projects' use is counted, and limits hold (FS_QUOTA_PDQ_ACCT, FS_QUOTA_PDQ_ENFD).
const (
	projectCounted = 1 << 4
	projectHeld    = 1 << 5
)

// ioctl is a call whose argument is a struct of this file.
func ioctl[T any](fd int, request uint, arg *T) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(unsafe.Pointer(arg)))
		if errno != unix.EINTR {
			return fault(errno)
		}
	}
}

// quotactl is a call about the project quota of an id, on the file system of an open file.
func quotactl[T any](fd int, command uint, id uint32, arg *T) error {
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, uintptr(fd), uintptr(command<<8|projectQuota), uintptr(id), uintptr(unsafe.Pointer(arg)), 0, 0)
	return fault(errno)
}

func fault(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}
