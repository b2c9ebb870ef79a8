// Package copytree copies what is in a directory, by descriptors: no name is looked up but in a directory that is open, and no link is followed, so that
// whatever lies there leads nowhere else. Owners, modes, times, extended attributes (but SELinux's labels), holes and further names of a file
// are kept. Sockets, which nobody listens on, are left out.
package copytree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/reflink"
)

const (
	maxDepth  = 512     // directories within each other, of which each holds two descriptors
	maxLinked = 1 << 16 // files with several names that are remembered; more become files of their own
	batch     = 512     // names of a directory that are held at a time
)

type copier struct {
	ctx    context.Context
	share  bool
	top    int // where the copy is made
	linked map[[2]uint64]string
}

// Copy makes an empty directory what another one is. Both are open for reading. A copy that fails is left half made.
func Copy(ctx context.Context, from, to *os.File) error {
	c := &copier{ctx: ctx, top: int(to.Fd()), linked: map[[2]uint64]string{}}
	return c.directory(from, to, "", 1)
}

// Clone is Copy into the same file system, whose files share what is in them with those that they are copied from. Somebody may write there meanwhile: each file is of
// one moment, and what vanishes is left out. A file system that cannot share is NotImplemented.
func Clone(ctx context.Context, from, to *os.File) error {
	c := &copier{ctx: ctx, share: true, top: int(to.Fd()), linked: map[[2]uint64]string{}}
	return c.directory(from, to, "", 1)
}

// directory copies all that is in a directory, and then what the directory itself is. name is its path below the top.
func (c *copier) directory(from, to *os.File, name string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%.200s...: more than %d directories within each other: %w", name, maxDepth, errdefs.ErrInvalidArgument)
	}
	for {
		names, err := from.Readdirnames(batch)
		for _, n := range names {
			if err := c.ctx.Err(); err != nil {
				return err
			}
			if err := c.one(from, to, n, path.Join(name, n), depth); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(from.Fd()), &st); err != nil {
		return &os.PathError{Op: "fstat", Path: name, Err: err}
	}
	return attributes(from, to, &st)
}

// one copies one name of a directory.
func (c *copier) one(from, to *os.File, base, name string, depth int) error {
	src, dst := int(from.Fd()), int(to.Fd())
	var st unix.Stat_t
	err := unix.Fstatat(src, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil {
		switch kind := st.Mode & unix.S_IFMT; kind {
		case unix.S_IFDIR:
			err = c.subdirectory(from, to, base, name, depth)
		case unix.S_IFSOCK:
		case unix.S_IFREG, unix.S_IFLNK, unix.S_IFIFO, unix.S_IFCHR, unix.S_IFBLK:
			key := [2]uint64{st.Dev, st.Ino}
			if first, ok := c.linked[key]; ok && unix.Linkat(c.top, first, dst, base, 0) == nil {
				return nil
			}
			if err = c.file(src, dst, base, &st); err == nil && st.Nlink > 1 && len(c.linked) < maxLinked {
				c.linked[key] = name
			}
		}
	}
	if err == nil || c.share && errors.Is(err, unix.ENOENT) {
		return nil
	}
	var of *os.PathError
	if errors.As(err, &of) && !errdefs.IsNotImplemented(err) || errdefs.IsInvalidArgument(err) {
		return err
	}
	return &os.PathError{Op: "copy", Path: name, Err: err}
}

func (c *copier) subdirectory(from, to *os.File, base, name string, depth int) error {
	const open = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(int(from.Fd()), base, open, 0)
	if err != nil {
		return err
	}
	src := os.NewFile(uintptr(fd), base)
	defer src.Close()
	if err := unix.Mkdirat(int(to.Fd()), base, 0o700); err != nil {
		return err
	}
	if fd, err = unix.Openat(int(to.Fd()), base, open, 0); err != nil {
		return err
	}
	dst := os.NewFile(uintptr(fd), base)
	defer dst.Close()
	return c.directory(src, dst, name, depth+1)
}

// file copies what is no directory.
func (c *copier) file(src, dst int, base string, st *unix.Stat_t) error {
	times := []unix.Timespec{st.Atim, st.Mtim}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return c.regular(src, dst, base, st)
	case unix.S_IFLNK:
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(src, base, buf)
		if err != nil {
			return err
		}
		if err := unix.Symlinkat(string(buf[:n]), dst, base); err != nil {
			return err
		}
		if err := unix.Fchownat(dst, base, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
	default:
		if err := unix.Mknodat(dst, base, st.Mode&unix.S_IFMT|0o600, int(st.Rdev)); err != nil {
			return err
		}
		if err := unix.Fchownat(dst, base, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		if err := unix.Fchmodat(dst, base, st.Mode&0o7777, 0); err != nil { // it is ours, and no link
			return err
		}
	}
	return unix.UtimesNanoAt(dst, base, times, unix.AT_SYMLINK_NOFOLLOW)
}

func (c *copier) regular(src, dst int, base string, st *unix.Stat_t) error {
	fd, err := unix.Openat(src, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	from := os.NewFile(uintptr(fd), base)
	defer from.Close()
	if fd, err = unix.Openat(dst, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600); err != nil {
		return err
	}
	to := os.NewFile(uintptr(fd), base)
	defer to.Close()
	if c.share {
		err = reflink.Clone(from, to)
	} else {
		err = c.data(from, to, st.Size)
	}
	if err != nil {
		return err
	}
	return attributes(from, to, st)
}

// data copies what is in a file, and leaves its holes out.
func (c *copier) data(from, to *os.File, size int64) error {
	if err := to.Truncate(size); err != nil {
		return err
	}
	const piece = 64 << 20 // between two looks at whether anybody waits
	for at := int64(0); at < size; {
		begin, err := unix.Seek(int(from.Fd()), at, unix.SEEK_DATA)
		switch {
		case errors.Is(err, unix.ENXIO): // nothing but a hole is left
			return nil
		case err != nil:
			begin = at // a file system that knows no holes
		}
		end, err := unix.Seek(int(from.Fd()), begin, unix.SEEK_HOLE)
		if err != nil || end <= begin {
			end = size
		}
		if _, err := from.Seek(begin, io.SeekStart); err != nil {
			return err
		}
		if _, err := to.Seek(begin, io.SeekStart); err != nil {
			return err
		}
		for end = min(end, size); begin < end; {
			if err := c.ctx.Err(); err != nil {
				return err
			}
			n, err := io.CopyN(to, from, min(piece, end-begin))
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			begin += n
		}
		at = end
	}
	return nil
}

// attributes gives a file or directory what another one has beside its content. The owner comes first, for it takes the set-user-ID bit and capabilities away.
func attributes(from, to *os.File, st *unix.Stat_t) error {
	fd := int(to.Fd())
	if err := unix.Fchown(fd, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if err := xattrs(int(from.Fd()), fd); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, st.Mode&0o7777); err != nil {
		return err
	}
	return unix.UtimesNanoAt(fd, "", []unix.Timespec{st.Atim, st.Mtim}, unix.AT_EMPTY_PATH)
}

func xattrs(from, to int) error {
	names := make([]byte, 64<<10) // XATTR_LIST_MAX
	n, err := unix.Flistxattr(from, names)
	if errors.Is(err, unix.ENOTSUP) || n == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("flistxattr: %w", err)
	}
	value := make([]byte, 64<<10) // XATTR_SIZE_MAX
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00") {
		if name == "security.selinux" {
			continue
		}
		n, err := unix.Fgetxattr(from, name, value)
		if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
			continue
		}
		if err == nil {
			err = unix.Fsetxattr(to, name, value[:n], 0)
		}
		if err != nil && !errors.Is(err, unix.ENOTSUP) {
			return fmt.Errorf("extended attribute %s: %w", name, err)
		}
	}
	return nil
}
