//go:build cgo

package spawn

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// openIn opens a path below a root, as a process with that root would: links, and "..", never lead out of it.
func openIn(root int, name string, flags int) (int, error) {
	return openHow(root, name, flags, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_MAGICLINKS)
}

func openHow(root int, name string, flags int, resolve uint64) (int, error) {
	how := &unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: resolve}
	for tries := 0; ; tries++ {
		fd, err := unix.Openat2(root, relative(name), how)
		// EAGAIN: something was renamed meanwhile, and the kernel cannot be sure that ".." stayed inside.
		if (errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)) && tries < 64 {
			continue
		}
		if err != nil {
			return -1, fmt.Errorf("open %s: %w", name, err)
		}
		return fd, nil
	}
}

func relative(name string) string {
	name = strings.TrimLeft(path.Clean("/"+name), "/")
	if name == "" {
		return "."
	}
	return name
}

// mkdirIn makes a directory below a root, with its parents, and opens it (O_PATH).
func mkdirIn(root int, name string, mode uint32) (int, error) {
	fd, err := openIn(root, name, unix.O_PATH|unix.O_DIRECTORY)
	if err == nil || !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	parent, base := path.Split(relative(name))
	if base == "" || base == "." {
		return -1, err
	}
	dir, err := mkdirIn(root, parent, mode)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	if err := unix.Mkdirat(dir, base, mode); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, fmt.Errorf("make directory %s: %w", name, err)
	}
	// A dangling link of that name: what it points to is made instead, by the next attempt's caller; it is refused here.
	fd, err = openHow(dir, base, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_BENEATH)
	if err != nil {
		return -1, fmt.Errorf("make directory %s: %w", name, err)
	}
	return fd, nil
}

// createIn makes an empty file below a root, with the directories above it, and opens it (O_PATH). One that is there is opened.
func createIn(root int, name string, mode uint32) (int, error) {
	fd, err := openIn(root, name, unix.O_PATH)
	if err == nil || !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	parent, base := path.Split(relative(name))
	dir, err := mkdirIn(root, parent, 0o755)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	made, err := unix.Openat(dir, base, unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_WRONLY, mode)
	if err != nil {
		return -1, fmt.Errorf("make file %s: %w", name, err)
	}
	defer unix.Close(made)
	fd, err = unix.Openat(dir, base, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", name, err)
	}
	return fd, nil
}
