package quota

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/ioctl"
)

// Numbers and forms of calls that golang.org/x/sys/unix lacks, of linux/fs.h, linux/quota.h and linux/dqblk_xfs.h.
const (
	fsIocGetXattr = 0x801c581f
	fsIocSetXattr = 0x401c5820

	projectQuota = 2
	qGetQuota    = 0x800007
	qSetQuota    = 0x800008
	qXGetQstat   = 'X'<<8 + 5
)

// fsXattr is what a file gives to those that are made in it (struct fsxattr).
type fsXattr struct {
	flags, _, _, project, _ uint32
	_                       [8]byte
}

// projectInherits: new files in the directory are of its project (FS_XFLAG_PROJINHERIT).
const projectInherits = 0x200

// diskQuota is the quota of an id (struct if_dqblk). Limits are of 1024 bytes each, the space of one.
type diskQuota struct {
	hard, _, space uint64
	_, _, inodes   uint64
	_, _           uint64
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

// quotactl is a call about the project quota of an id, on the file system of an open file.
func quotactl[T any](f *os.File, command uint, id uint32, arg *T) error {
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, f.Fd(), uintptr(command<<8|projectQuota), uintptr(id), uintptr(unsafe.Pointer(arg)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// hasProjects says whether a directory is on a file system that counts projects and holds their limits.
func hasProjects(dir string) bool {
	d, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer d.Close()
	var stat quotaStat
	if err := quotactl(d, qXGetQstat, 0, &stat); err != nil {
		return false
	}
	const both = projectCounted | projectHeld
	return stat.flags&both == both
}

// ProjectFree says whether no file on the file system of a directory is of a project. A limit that somebody has left is nobody's.
func ProjectFree(dir string, id uint32) bool {
	used, err := ProjectUsed(dir, id)
	return errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) || err == nil && used == Used{}
}

// ProjectOf is the project that a directory gives to what is made in it; 0: none.
func ProjectOf(dir string) (uint32, error) {
	d, err := os.Open(dir)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	attr, err := xattrOf(d)
	if err != nil || attr.flags&projectInherits == 0 {
		return 0, err
	}
	return attr.project, nil
}

func xattrOf(d *os.File) (*fsXattr, error) {
	attr := &fsXattr{} // what has no name here is set as it was read
	if err := ioctl.Call(d.Fd(), fsIocGetXattr, attr); err != nil {
		return nil, fmt.Errorf("project of %s: %w", d.Name(), err)
	}
	return attr, nil
}

// SetProject makes a directory, in which nothing is yet, one of a project.
func SetProject(dir string, id uint32) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	attr, err := xattrOf(d)
	if err != nil {
		return err
	}
	attr.project, attr.flags = id, attr.flags|projectInherits
	if err := ioctl.Call(d.Fd(), fsIocSetXattr, attr); err != nil {
		return fmt.Errorf("make %s a project: %w", dir, err)
	}
	return nil
}

// LimitProject holds a project to so many bytes on the file system of a directory; 0: to none.
func LimitProject(dir string, id uint32, size int64) error {
	if id == 0 {
		return fmt.Errorf("%s has no project: its size is not held", dir)
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	q := diskQuota{hard: uint64(size) / 1024, valid: quotaLimits} // it is not negative
	if size > 0 {
		q.hard = max(q.hard, 1) // 0 is no limit
	}
	if err := quotactl(d, qSetQuota, id, &q); err != nil {
		return fmt.Errorf("limit the project %d of %s (is its file system mounted with prjquota?): %w", id, dir, err)
	}
	return nil
}

// ProjectUsed is what a project takes of the file system of a directory.
func ProjectUsed(dir string, id uint32) (Used, error) {
	d, err := os.Open(dir)
	if err != nil {
		return Used{}, err
	}
	defer d.Close()
	var q diskQuota
	if err := quotactl(d, qGetQuota, id, &q); err != nil {
		return Used{}, fmt.Errorf("quota of the project %d of %s: %w", id, dir, err)
	}
	return Used{Bytes: q.space, Inodes: q.inodes}, nil
}
