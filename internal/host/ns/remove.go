package ns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Remove unpins the directory's namespaces and removes the directory. It is idempotent, and does the same for what a
// crash in the middle of Create or Remove, or a reboot, has left. A directory that holds other files is an error, and
// keeps them.
func Remove(dir string) error {
	var errs []error
	for _, k := range append(kinds[:], PID) {
		errs = append(errs, unmountAll(Path(dir, k)), removeFile(Path(dir, k)))
	}
	errs = append(errs, unmountAll(dir), removeFile(dir))
	return errors.Join(errs...)
}

// unmountAll unmounts whatever is stacked on the path; nothing, or no such path, is fine. A pin that somebody holds
// open goes from here at once, and for good when they close it.
func unmountAll(path string) error {
	for {
		switch err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); {
		case err == nil:
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
			return nil
		default:
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
		return err
	}
	return nil
}
