// Package spreaddirs places directories that have nothing to do with each other apart on the disk.
package spreaddirs

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// topDir is FS_TOPDIR_FL of linux/fs.h, which package unix lacks; chattr(1) calls it T.
const topDir = 0x20000

// Directories has ext4 spread what is made in a directory over the disk. Without it ext4 puts a new directory, and all that comes into it,
// near its parent: where others have just been removed. It gives out no inode of these for up to five minutes, and looks each of them up
// in turn for every file that is made there (docs/SPEED.md). Other file systems do nothing of the kind, and are left alone.
func Directories(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	if fs.Type != unix.EXT4_SUPER_MAGIC {
		return nil
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
	if err == nil && flags&topDir == 0 {
		err = unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, int(flags|topDir))
	}
	// A disk that is full, or cannot be written at the moment, costs time here and nothing else.
	if err == nil || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOTTY) {
		return nil
	}
	return fmt.Errorf("attributes of %s: %w", dir, err)
}
