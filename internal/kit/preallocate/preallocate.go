// Package preallocate takes room on a disk in advance, for what has to be written even when the disk is full: that a process has ended, that
// a pod is to be removed. The room is in the files that are written, so that nobody else can take it between the moment when it is
// wanted and the moment when it is used, as with a file that is removed in an emergency.
//
// It is a promise of the file system (fallocate(2)), which ext4, xfs, btrfs and tmpfs give. Others do without: then a full disk is
// what it was.
package preallocate

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// File sees to it that the first size bytes of a file can be written. The file is at least that long then.
func File(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := allocate(int(f.Fd()), 0, 0, size); err != nil {
		return &os.PathError{Op: "fallocate", Path: path, Err: err}
	}
	return nil
}

// Ahead sees to it that so many bytes can be written after the first size bytes of an open file, whose length stays as it is.
func Ahead(fd int, size, room int64) error { return allocate(fd, unix.FALLOC_FL_KEEP_SIZE, size, room) }

func allocate(fd int, mode uint32, from, n int64) error {
	for {
		err := unix.Fallocate(fd, mode, from, n)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			return nil
		default:
			return err
		}
	}
}
