package mount

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Filesystem makes a mount of a file system, such as that of a server or on a device, that has no place yet. Options are the file system's own, "name" or "name=value". It may take as long as a
// server, or a disk, takes to answer; who does not wait for it leaves nothing mounted. A kernel that has no such file system is FailedPrecondition.
func Filesystem(kind, source string, options []string) (*Detached, error) {
	config, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if errors.Is(err, unix.ENODEV) {
		return nil, fmt.Errorf("this kernel has no file system %q (nor a module for it): %w", kind, errdefs.ErrFailedPrecondition)
	}
	if err != nil {
		return nil, fmt.Errorf("fsopen %s: %w", kind, err)
	}
	defer unix.Close(config)
	if err := unix.FsconfigSetString(config, "source", source); err != nil {
		return nil, said(config, "source", err)
	}
	for _, o := range options {
		name, value, valued := strings.Cut(o, "=")
		if valued {
			err = unix.FsconfigSetString(config, name, value)
		} else {
			err = unix.FsconfigSetFlag(config, name)
		}
		if err != nil {
			return nil, said(config, "option "+o, err)
		}
	}
	if err := unix.FsconfigCreate(config); err != nil {
		return nil, said(config, "mount "+source, err)
	}
	fd, err := unix.Fsmount(config, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, said(config, "mount "+source, err)
	}
	return &Detached{fd}, nil
}

// said adds to an error what the kernel has to say of it.
func said(config int, what string, err error) error {
	var words []string
	buf := make([]byte, 8<<10)
	for range 16 {
		n, rerr := unix.Read(config, buf)
		if rerr != nil || n <= 0 {
			break
		}
		// "e ", "w " or "i " and the message
		if kind, message, ok := bytes.Cut(buf[:n], []byte(" ")); ok && string(kind) == "e" {
			words = append(words, strings.TrimSpace(string(message)))
		}
	}
	if len(words) > 0 {
		return fmt.Errorf("%s: %s: %w", what, strings.Join(words, "; "), err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Listed tells whether something is mounted at the path itself, by the list of all mounts: the path is not looked at, but for its directory, as its server may be silent.
func Listed(path string) (bool, error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	points, err := Below(dir)
	return slices.Contains(points, filepath.Join(dir, filepath.Base(path))), err
}
