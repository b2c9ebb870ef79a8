package rootfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// maxRootFile bounds what is read of a file of an image, in bytes.
const maxRootFile = 16 << 20

// mostTries bounds how often a path is walked anew.
const mostTries = 1000

// openIn finds a path below a directory, as a process with that for its root would. What is wrong with it is InvalidArgument. The kernel
// begins no walk anew by itself (EAGAIN): when anything was renamed or mounted on the host meanwhile it cannot be sure that ".." stayed inside.
func openIn(dir int, name string) (fd int, err error) {
	for range mostTries {
		fd, err = unix.Openat2(dir, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	switch {
	case err == nil:
		return fd, nil
	case errors.Is(err, unix.EAGAIN):
		return -1, fmt.Errorf("%w: so much is renamed or mounted on this host that the path cannot be walked: %w", err, errdefs.ErrUnavailable)
	}
	return -1, fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
}

// ReadFile reads a regular file in a root file system, by its path without a leading slash; one that is not there is empty.
// Links are followed as the container would follow them, so that none leads out, and nothing but a regular file is opened: to
// open a FIFO waits, and to open a device acts.
func ReadFile(root, name string) ([]byte, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("root file system %s: %w", root, err)
	}
	defer unix.Close(dir)
	fd, err := openIn(dir, name)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the image's /%s: %w", name, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > maxRootFile {
		return nil, fmt.Errorf("the image's /%s is no regular file of at most %d bytes: %w", name, maxRootFile, errdefs.ErrInvalidArgument)
	}
	f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxRootFile))
}

// within finds a directory or a file in a root file system that nobody can change, and returns its path free of symbolic links.
// Links are followed as a process would that has it for its root, so that none leads out.
func within(root, path string) (string, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("root file system %s: %w", root, err)
	}
	defer unix.Close(dir)
	fd, err := openIn(dir, "./"+path)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return "", fmt.Errorf("there is no such path in it: %w", errdefs.ErrInvalidArgument)
	case err != nil:
		return "", err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFDIR && kind != unix.S_IFREG {
		return "", fmt.Errorf("it is neither a directory nor a regular file: %w", errdefs.ErrInvalidArgument)
	}
	top, terr := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir))
	found, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err := errors.Join(terr, err); err != nil {
		return "", err
	}
	if found != top && !strings.HasPrefix(found, top+"/") {
		return "", fmt.Errorf("it is at %s, outside of %s: %w", found, top, errdefs.ErrInternal)
	}
	return found, nil
}
