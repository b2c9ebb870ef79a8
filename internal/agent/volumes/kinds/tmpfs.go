package kinds

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// mountTmpfs mounts a tmpfs at dir unless one is there. size is in bytes; 0: the kernel's default.
func mountTmpfs(dir string, size int64, mode os.FileMode) error {
	if is, err := IsTmpfs(dir); err != nil || is {
		return err
	}
	bits := uint32(mode.Perm())
	if mode&os.ModeSticky != 0 {
		bits |= unix.S_ISVTX
	}
	options := fmt.Sprintf("mode=%o", bits)
	if size > 0 {
		options += fmt.Sprintf(",size=%d", size)
	}
	if err := unswapped(func(more string) error {
		return unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options+more)
	}); err != nil {
		return fmt.Errorf("mount a tmpfs at %s: %w", dir, err)
	}
	return nil
}

// swapped: this kernel knows no tmpfs that is kept from swap (6.4 does). It is asked once: it writes each refusal into its log.
var swapped atomic.Bool

// unswapped mounts a tmpfs whose content is not written to a disk as swap either, where the kernel can keep it from that.
func unswapped(mount func(options string) error) error {
	if !swapped.Load() {
		if err := mount(",noswap"); !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	err := mount("")
	if err == nil {
		swapped.Store(true)
	}
	return err
}

// IsTmpfs says that dir is the root of a tmpfs: the pods' directory may be on one itself.
func IsTmpfs(dir string) (bool, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return false, fmt.Errorf("statfs %s: %w", dir, err)
	}
	if fs.Type != unix.TMPFS_MAGIC {
		return false, nil
	}
	return isMountPoint(dir)
}

// isMountPoint says that something is mounted at dir.
func isMountPoint(dir string) (bool, error) {
	var stat unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, unix.AT_SYMLINK_NOFOLLOW, 0, &stat); err != nil {
		return false, fmt.Errorf("statx %s: %w", dir, err)
	}
	return stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

// Unmount takes away all that is mounted at dir; users that still have it open keep their view until they close it.
func Unmount(dir string) error {
	for {
		err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
	}
}
