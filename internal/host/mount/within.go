package mount

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// mostEntries bounds how many files within looks at. The folders of pods and containers have a dozen.
const mostEntries = 256

// within finds the mount points at or below a directory by looking at what is there, and not at the list of all mounts, which is the
// longer the more pods there are. What is mounted below one of them is not listed. It is not known (false) on kernels before 5.8,
// and where there is a lot to look at.
func within(dir string) (points []string, known bool) {
	left := mostEntries
	known = look(dir, &points, &left)
	return points, known
}

// At is Below for a directory that holds few files, mostly: it costs less where a lot is mounted on the host.
func At(dir string) ([]string, error) {
	if points, known := within(dir); known {
		return points, nil
	}
	return Below(dir)
}

func look(path string, points *[]string, left *int) bool {
	if *left--; *left < 0 {
		return false
	}
	var st unix.Statx_t
	// Without AT_STATX_DONT_SYNC a file system whose server hangs would be asked.
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return true
	}
	if err != nil || st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return false
	}
	if st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		*points = append(*points, path)
		return true
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return true
	}
	dir, err := os.Open(path)
	if err != nil {
		return errors.Is(err, unix.ENOENT)
	}
	names, err := dir.Readdirnames(*left + 1)
	dir.Close()
	if err != nil && !errors.Is(err, io.EOF) {
		return errors.Is(err, unix.ENOENT)
	}
	for _, name := range names {
		if !look(filepath.Join(path, name), points, left) {
			return false
		}
	}
	return true
}

// stackedMost bounds how many mounts on top of each other are taken away.
const stackedMost = 64

// unmountWithin is UnmountBelow by within. done is false where that cannot tell.
func unmountWithin(dir string) (done bool, err error) {
	for range stackedMost {
		points, known := within(dir)
		if !known {
			return false, nil
		}
		if len(points) == 0 {
			return true, nil
		}
		var errs []error
		for _, p := range points {
			errs = append(errs, unmountTree(p))
		}
		if err := errors.Join(errs...); err != nil {
			return true, err
		}
	}
	return false, nil
}

// unmountTree takes a mount away; one with others below it is busy, and is detached with them.
func unmountTree(point string) error {
	// What is unmounted from a mount that shares is unmounted from its peers, too: from the host's own root, say.
	err := unix.Mount("", point, "", unix.MS_PRIVATE|unix.MS_REC, "")
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // they say that it is gone
		return &os.PathError{Op: "make private", Path: point, Err: err}
	}
	return Unmount(point)
}
