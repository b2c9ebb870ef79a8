package untar

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Inherit gives the implied directories of a layer in dir the owner, mode, attributes and times that they have in the
// layers below, topmost first: in an overlay the topmost directory decides. One that no layer below has stays root's, 0755.
func Inherit(dir string, implied, below []string) error {
	if len(implied) == 0 || len(below) == 0 {
		return nil
	}
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("the layer's directory %s: %w", dir, err)
	}
	defer unix.Close(root) // nothing was written to it
	for _, p := range implied {
		if err := inherit(root, p, below); err != nil {
			return fmt.Errorf("directory %q: what the layers below say of it: %w", p, err)
		}
	}
	return nil
}

func inherit(root int, p string, below []string) error {
	for _, lower := range below {
		from, last, err := find(lower, p)
		if err != nil {
			return err
		}
		if from >= 0 {
			defer unix.Close(from) // nothing was written to it
			to, err := openIn(root, p, unix.O_RDONLY)
			if err != nil {
				return err
			}
			defer unix.Close(to) // as above
			return copyAttributes(to, from)
		}
		if last {
			return nil
		}
	}
	return nil
}

// find opens the directory p of a layer, or returns -1. last says that the layers below this one are hidden there.
func find(lower, p string) (fd int, last bool, err error) {
	fd, err = unix.Open(lower, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, false, err
	}
	for _, name := range strings.Split(strings.Trim(path.Clean(p), "/"), "/") {
		next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		unix.Close(fd) // as above
		if errors.Is(err, unix.ENOENT) {
			return -1, last, nil
		}
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			return -1, true, nil // a file, a link or a whiteout
		}
		if err != nil {
			return -1, false, err
		}
		fd = next
		var opaque [1]byte
		if n, err := unix.Fgetxattr(fd, opaqueXattr, opaque[:]); err == nil && n == 1 && opaque[0] == 'y' {
			last = true
		}
	}
	return fd, last, nil
}

func copyAttributes(to, from int) error {
	var st unix.Stat_t
	if err := unix.Fstat(from, &st); err != nil {
		return err
	}
	if err := unix.Fchown(to, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if err := copyXattrs(to, from); err != nil {
		return err
	}
	if err := unix.Fchmod(to, st.Mode&0o7777); err != nil {
		return err
	}
	return futimens(to, [2]unix.Timespec{st.Atim, st.Mtim})
}

func copyXattrs(to, from int) error {
	size, err := unix.Flistxattr(from, nil)
	if size == 0 || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return err
	}
	names := make([]byte, size)
	if size, err = unix.Flistxattr(from, names); err != nil {
		return err
	}
	value := make([]byte, 64<<10) // the most that Linux has
	for _, name := range strings.Split(strings.TrimRight(string(names[:size]), "\x00"), "\x00") {
		if name == "" || strings.HasPrefix(name, "trusted.") {
			continue
		}
		n, err := unix.Fgetxattr(from, name, value)
		if err != nil {
			return err
		}
		if err := unix.Fsetxattr(to, name, value[:n], 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
			return err
		}
	}
	return nil
}
