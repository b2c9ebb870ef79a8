package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
)

// logPath is the log file's absolute path, or empty when there is to be none.
func logPath(directory, path string) (string, error) {
	if directory == "" || path == "" {
		return "", nil
	}
	if !filepath.IsLocal(path) {
		return "", fmt.Errorf("log_path %q leads out of the sandbox's log_directory %s; it is relative to it: %w", path, directory, errdefs.ErrInvalidArgument)
	}
	return filepath.Join(directory, path), nil
}

// prepareLog makes the directories of a log file. The log directory may be within the reach of a pod (a hostPath volume of
// /var/log): no link in it is followed out of it, and nothing is written to but a regular file.
func prepareLog(directory, path string) error {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return fmt.Errorf("log_directory: %w", err)
	}
	root, err := os.OpenRoot(directory)
	if err != nil {
		return fmt.Errorf("log_directory: %w", err)
	}
	defer root.Close()
	path = filepath.Clean(path)
	if err := root.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("log_path %q in %s: %w: %w", path, directory, err, errdefs.ErrInvalidArgument)
	}
	st, err := root.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("it is there and is no regular file (%s)", st.Mode())
	}
	if err != nil {
		return fmt.Errorf("log_path %q in %s: %w: %w", path, directory, err, errdefs.ErrInvalidArgument)
	}
	return nil
}
