package podlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// open opens a log file to read it. A container that has the log directory mounted (a hostPath volume of /var/log) may put links to any file of
// the host there, which whoever may read logs is not to read: so neither the file nor the container's folder that it is in may be a link,
// and it is a regular file. What is above is the administrator's.
func open(path string) (*os.File, error) {
	dir, file := filepath.Split(filepath.Clean(path))
	dir = filepath.Clean(dir)
	top, err := openat(unix.AT_FDCWD, filepath.Dir(dir), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: filepath.Dir(dir), Err: err}
	}
	defer unix.Close(top)
	name := file
	if base := filepath.Base(dir); base != "/" {
		name = filepath.Join(base, file)
	}
	// It is looked at before it is opened: to open a FIFO waits, to open a device acts.
	found, err := openat(top, name, unix.O_PATH, unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_BENEATH)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("log %s: there is a symbolic link, where a log or its folder should be: %w: %w", path, err, errdefs.ErrFailedPrecondition)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(found)
	var st unix.Stat_t
	if err := unix.Fstat(found, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("log %s is no regular file (mode %#o): %w", path, st.Mode, errdefs.ErrFailedPrecondition)
	}
	fd, err := openat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", found), unix.O_RDONLY, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

func openat(dir int, name string, flags, resolve uint64) (int, error) {
	for {
		fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve})
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}
