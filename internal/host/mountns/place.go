package mountns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/mount"
)

// covers are the file systems that stand over folders of the host, by their device numbers. What is made in them is not made on the host.
type covers map[uint64]bool

// place shows a folder at a path, in the mount namespace of the calling thread.
//
// Where the path does not exist, a folder for it must not be made: that would be the host's. So the deepest folder that exists above it is
// covered by a tmpfs that has the same entries, each bound from below, and the path is made in that.
func (c covers) place(f Folder) error {
	if !filepath.IsAbs(f.Target) {
		return fmt.Errorf("it is not an absolute path: %w", errdefs.ErrInvalidArgument)
	}
	there, missing, err := split(filepath.Clean(f.Target))
	if err != nil {
		return err
	}
	target := filepath.Join(there, missing)
	if missing != "" {
		var st unix.Stat_t
		if err := unix.Stat(there, &st); err != nil {
			return &fs.PathError{Op: "stat", Path: there, Err: err}
		}
		if !c[st.Dev] {
			if err := c.cover(there); err != nil {
				return fmt.Errorf("cover %s: %w", there, err)
			}
		}
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
	}
	return mount.Bind(f.Source, target, mount.BindOptions{})
}

// split divides a path into the deepest folder that exists, without symbolic links, and the rest.
func split(path string) (there, missing string, err error) {
	for {
		real, err := filepath.EvalSymlinks(path)
		if err == nil {
			st, err := os.Stat(real)
			if err == nil && !st.IsDir() {
				err = fmt.Errorf("%s is no folder: %w", real, errdefs.ErrFailedPrecondition)
			}
			return real, missing, err
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", "", err
		}
		if to, err := os.Readlink(path); err == nil {
			return "", "", fmt.Errorf("%s is a symbolic link to %s, which is not there: %w", path, to, errdefs.ErrFailedPrecondition)
		}
		missing = filepath.Join(filepath.Base(path), missing)
		path = filepath.Dir(path)
	}
}

// cover mounts a tmpfs over a folder and binds all that was visible in the folder into it.
func (c covers) cover(dir string) error {
	if dir == "/" {
		return fmt.Errorf("the root of the file system cannot be covered: make a folder in it, such as /var: %w", errdefs.ErrFailedPrecondition)
	}
	below, err := os.Open(dir) // still the folder itself when something is mounted over it
	if err != nil {
		return err
	}
	defer below.Close()
	entries, err := below.ReadDir(-1)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(below.Fd()), &st); err != nil {
		return &fs.PathError{Op: "fstat", Path: dir, Err: err}
	}
	if err := mount.Tmpfs(dir, mount.TmpfsOptions{Mode: st.Mode & 0o7777, UID: st.Uid, GID: st.Gid}); err != nil {
		return err
	}
	from := "/proc/thread-self/fd/" + strconv.Itoa(int(below.Fd()))
	for _, e := range entries {
		if err := rebind(filepath.Join(from, e.Name()), filepath.Join(dir, e.Name()), e.Type()); err != nil {
			return err
		}
	}
	if err := unix.Stat(dir, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	c[st.Dev] = true
	return nil
}

// rebind makes what is at from visible at to, which does not exist yet. What has gone meanwhile is left out.
func rebind(from, to string, kind fs.FileMode) (err error) {
	switch {
	case kind&fs.ModeSymlink != 0:
		link, err := os.Readlink(from)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return os.Symlink(link, to)
	case kind.IsDir():
		err = os.Mkdir(to, 0o755)
	default:
		err = os.WriteFile(to, nil, 0o600)
	}
	if err == nil {
		err = mount.Bind(from, to, mount.BindOptions{Recursive: true})
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return os.Remove(to)
	case errors.Is(err, unix.EINVAL):
		return nil // it is set apart (mount.Isolate): the program sees it empty
	}
	return err
}
