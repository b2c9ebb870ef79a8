package hold

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/reflink"
)

const (
	// What stays free of a file system when room of it is reserved: a part of it, and no more than so many bytes. The rest of the node lives there too.
	spareDivisor = 20
	mostSpare    = 1 << 30
	// fsNoCow is the flag of a file of btrfs that is written to where it lies (FS_NOCOW_FL).
	fsNoCow = 0x00800000
)

// room says whether a file system that has so many bytes in all, and so many free, of which some are owed, has room for more, and how much of it must stay.
func room(more, free, total, owed int64) error {
	spare := min(total/spareDivisor, mostSpare) + owed
	if more > 0 && more > free-spare {
		return fmt.Errorf("%d bytes more are to be reserved, and the file system has %d free, of which %d stay: %w", more, free, spare, unix.ENOSPC)
	}
	return nil
}

// Spare says whether the disk has room for more bytes than are on it now, of which those that are owed are others'. Some of it stays free.
func (h *Holders) Spare(more, owed int64) error {
	free, total, err := h.Room()
	if err != nil {
		return err
	}
	return room(more, free, total, owed)
}

// Owed is how many bytes of the disk an image may come to need, since snapshots have its blocks as well: where it is written to there, it gets others.
func Owed(v Volume) (int64, error) {
	f, err := os.Open(image{}.path(v))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	_, shared, err := reflink.Extents(f)
	if errdefs.IsNotImplemented(err) {
		return 0, nil // nor does it share anything
	}
	return shared, err
}

// reserve has a file be of a size, with the disk's room for all of it, but for what is owed to others. A file that cannot be had so large is as it was.
func reserve(f *os.File, size, owed int64) error {
	var disk unix.Statfs_t
	var file unix.Stat_t
	if err := errors.Join(unix.Fstatfs(int(f.Fd()), &disk), unix.Fstat(int(f.Fd()), &file)); err != nil {
		return err
	}
	if err := room(size-file.Blocks*512, int64(disk.Bavail)*disk.Bsize, int64(disk.Blocks)*disk.Bsize, owed); err != nil {
		return err
	}
	err := unix.Fallocate(int(f.Fd()), 0, 0, size)
	if err != nil && size > file.Size {
		err = errors.Join(err, f.Truncate(file.Size))
	}
	return err
}

// inPlace has an empty file be written to where it lies: elsewhere btrfs would need room that nobody has reserved.
func inPlace(f *os.File) error {
	var disk unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &disk); err != nil || disk.Type != unix.BTRFS_SUPER_MAGIC {
		return err
	}
	flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags|fsNoCow)) // 32 flags fit
	}
	if err != nil {
		return fmt.Errorf("have btrfs write %s in place: %w", f.Name(), err)
	}
	return nil
}

// Blank says whether nobody has written anything but zeros to a volume that is a block device.
func Blank(v Volume) (bool, error) {
	if d, err := os.OpenFile(v.Data, os.O_RDWR, 0); err == nil {
		err = d.Sync() // what was written to the device is in the file then
		if err = errors.Join(err, d.Close()); err != nil {
			return false, err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	f, err := os.Open(image{}.path(v))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	return zeros(f)
}

// zeros says whether there is nothing but zeros in a file, of which only what is no hole is read.
func zeros(f *os.File) (bool, error) {
	block := make([]byte, 1<<20)
	for at := int64(0); ; {
		from, err := f.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		to, err := f.Seek(from, unix.SEEK_HOLE)
		if err != nil {
			return false, err
		}
		for at = from; at < to; {
			n, err := f.ReadAt(block[:min(int64(len(block)), to-at)], at)
			for _, b := range block[:n] {
				if b != 0 {
					return false, nil
				}
			}
			at += int64(n)
			if err != nil && !errors.Is(err, io.EOF) {
				return false, err
			}
			if n == 0 {
				return true, nil // it ends here
			}
		}
	}
}
