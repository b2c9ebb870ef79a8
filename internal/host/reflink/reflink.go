// Package reflink has files share what is in them, where their file system can (btrfs, xfs): a copy takes no room until one of the two is written to.
package reflink

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// noCow is the flag of a file of btrfs that is written to where it lies (FS_NOCOW_FL). Only files that are alike in it can share anything.
const noCow = 0x00800000

// Clone has an empty file share all that is in another one of the same file system.
//
// Errors: NotImplemented (the file system cannot), else what the system says.
func Clone(from, to *os.File) error {
	if err := alike(from, to); err != nil {
		return err
	}
	if err := retried(func() error { return unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) }); err != nil {
		return told(from, err)
	}
	return nil
}

// piece is how much of a file is shared at a time.
const piece = 256 << 20

// Pieces is Clone of the first size bytes of a file that nobody writes to, piece by piece; an error of pause, which is called before each, ends it.
func Pieces(from, to *os.File, size int64, pause func() error) error {
	if err := alike(from, to); err != nil {
		return err
	}
	for at := int64(0); at < size; at += piece {
		if err := pause(); err != nil {
			return err
		}
		part := unix.FileCloneRange{Src_fd: int64(from.Fd()), Src_offset: uint64(at), Src_length: uint64(min(piece, size-at)), Dest_offset: uint64(at)} // none is negative
		if err := retried(func() error { return unix.IoctlFileCloneRange(int(to.Fd()), &part) }); err != nil {
			return told(from, err)
		}
	}
	return nil
}

// Can says whether a file could be shared with an empty one of the same directory. Nothing is left of the try.
func Can(from, to *os.File) error {
	if err := alike(from, to); err != nil {
		return err
	}
	info, err := from.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return nil
	}
	const block = 64 << 10 // that of file systems has no more
	part := unix.FileCloneRange{Src_fd: int64(from.Fd()), Src_length: uint64(min(block, info.Size()))}
	if err := retried(func() error { return unix.IoctlFileCloneRange(int(to.Fd()), &part) }); err != nil {
		return told(from, err)
	}
	return to.Truncate(0)
}

// alike gives an empty file the one flag that keeps files of btrfs from sharing.
func alike(from, to *os.File) error {
	flags, err := unix.IoctlGetUint32(int(from.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil || flags&noCow == 0 {
		return nil // file systems without flags have nothing to be alike in
	}
	has, err := unix.IoctlGetUint32(int(to.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil && has&noCow == 0 {
		err = unix.IoctlSetPointerInt(int(to.Fd()), unix.FS_IOC_SETFLAGS, int(has|noCow)) // 32 flags fit
	}
	if err != nil {
		return fmt.Errorf("have %s be written in place: %w", to.Name(), err)
	}
	return nil
}

// cannot are the errors of file systems that do not know how to share, or not these two files.
var cannot = []error{unix.EOPNOTSUPP, unix.ENOTTY, unix.ENOSYS, unix.EXDEV, unix.EINVAL}

func told(from *os.File, err error) error {
	for _, c := range cannot {
		if errors.Is(err, c) {
			return fmt.Errorf("its file system has no reflinks: %w: %w", &os.PathError{Op: "clone", Path: from.Name(), Err: err}, errdefs.ErrNotImplemented)
		}
	}
	return &os.PathError{Op: "clone", Path: from.Name(), Err: err}
}

func retried(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Of the kernel's interface for the extents of a file (linux/fiemap.h), which golang.org/x/sys/unix lacks.
const (
	fsIocFiemap  = 0xc020660b
	extentLast   = 0x1
	extentShared = 0x2000
	extents      = 256 // asked for at a time
)

type fiemap struct {
	start, length                  uint64
	flags, mapped, count, reserved uint32
	extents                        [extents]extent
}

type extent struct {
	logical, physical, length uint64
	_                         [2]uint64
	flags                     uint32
	_                         [3]uint32
}

// Extents says how many bytes of the disk a file has, and how many of these are others' as well. Where the file system does not say it, that is NotImplemented.
func Extents(f *os.File) (all, shared int64, err error) {
	ask := &fiemap{length: ^uint64(0), count: extents}
	for {
		ask.mapped = 0
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fsIocFiemap, uintptr(unsafe.Pointer(ask)))
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return all, shared, told(f, errno)
		}
		if ask.mapped == 0 {
			return all, shared, nil
		}
		last := false
		for _, e := range ask.extents[:min(ask.mapped, extents)] {
			all += int64(e.length)
			if e.flags&extentShared != 0 {
				shared += int64(e.length)
			}
			ask.start, last = e.logical+e.length, e.flags&extentLast != 0
		}
		if last {
			return all, shared, nil
		}
		ask.length = ^uint64(0) - ask.start
	}
}
