package container

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// maxRootFile bounds what is read of a file of an image, in bytes.
const maxRootFile = 16 << 20

// readIn reads a regular file in a root file system, by its path without a leading slash; one that is not there is empty.
// Links are followed as the container would follow them, so that none leads out, and nothing but a regular file is opened: to
// open a FIFO waits, and to open a device acts.
func readIn(root, name string) ([]byte, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("root file system %s: %w", root, err)
	}
	defer unix.Close(dir)
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the image's /%s: %w: %w", name, err, errdefs.ErrInvalidArgument)
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
