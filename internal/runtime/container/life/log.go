package life

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/runtime/sandbox"
)

// logPath is the log file's absolute path as clients know it, or empty when there is to be none.
func logPath(directory, path string) (string, error) {
	if directory == "" || path == "" {
		return "", nil
	}
	if !filepath.IsLocal(path) || filepath.Clean(path) == "." {
		return "", fmt.Errorf("log_path %q leads out of the sandbox's log_directory %s, or is it; it is a file's path relative to it: %w", path, directory, errdefs.ErrInvalidArgument)
	}
	return filepath.Join(directory, path), nil
}

// prepareLog makes the directories of a log file, and returns the file's path in the form that tells the executor to follow no link in it.
// The log directory may be within the reach of a pod (a hostPath volume of /var/log): what links it has are of nobody who could be
// trusted, and nothing is written to but a regular file. The executor looks again when it opens the file.
func prepareLog(sb *sandbox.Record, path string) (string, error) {
	directory, err := sb.LogDirectory()
	if err != nil {
		return "", fmt.Errorf("log_directory: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	path = filepath.Clean(path)
	wrong := func(err error) error {
		return fmt.Errorf("log_path %q in %s: %w: %w", path, directory, err, errdefs.ErrInvalidArgument)
	}
	dir, err := makeDirs(filepath.Dir(filepath.Join(directory, path)))
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		err = fmt.Errorf("%w: below the log directory there may be no symbolic link, and on the way nothing but directories", err)
	}
	if err != nil {
		return "", wrong(err)
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	err = unix.Fstatat(dir, filepath.Base(path), &st, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return "", wrong(err)
	}
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		return "", wrong(fmt.Errorf("it is there and is no regular file (mode %#o)", st.Mode))
	}
	return directory + "/./" + path, nil
}

// makeDirs makes a directory and those above it, and opens it (O_PATH). No link is followed.
func makeDirs(path string) (int, error) {
	dir, err := openStrict(unix.AT_FDCWD, path)
	if !errors.Is(err, unix.ENOENT) { // mostly it is there
		return dir, err
	}
	if dir, err = openStrict(unix.AT_FDCWD, "/"); err != nil {
		return -1, err
	}
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		next, err := openStrict(dir, name)
		if errors.Is(err, unix.ENOENT) {
			if err = unix.Mkdirat(dir, name, 0o755); err == nil || errors.Is(err, unix.EEXIST) {
				next, err = openStrict(dir, name)
			}
		}
		unix.Close(dir)
		if err != nil {
			return -1, fmt.Errorf("directory %s of %s: %w", name, path, err)
		}
		dir = next
	}
	return dir, nil
}

func openStrict(dir int, name string) (int, error) {
	for {
		fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// ReopenLog makes the executor write into a new log file; the old one has been moved by the caller.
func (m *Manager) ReopenLog(ctx context.Context, id ids.ContainerID) error {
	rec, err := m.cfg.Containers.Get(id)
	if err != nil {
		return err
	}
	if rec.Exit != nil || rec.StartedAt.IsZero() {
		return fmt.Errorf("container %s is %s; only a running one writes a log: %w", id, rec.State(), errdefs.ErrFailedPrecondition)
	}
	return m.cfg.Executor.ReopenLog(ctx, id)
}
