package probe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// existing returns the path itself, or the nearest directory above it that exists: where it would be made.
func existing(path string) string {
	for path = filepath.Clean(path); ; path = filepath.Dir(path) {
		if _, err := os.Stat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
	}
}

// overlay mounts one on the file system of the data directory, for not every file system can hold its upper directory.
func overlay(dataDir string) Result {
	const name = "overlayfs"
	err := tryOverlay(existing(dataDir))
	if err == nil {
		return ok(name, "mounts at %s", existing(dataDir))
	}
	f := bad(name, "%v", err)
	switch {
	case errors.Is(err, unix.ENODEV):
		return f.fail("load the kernel's module: modprobe overlay")
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return f.fail("run as root with CAP_SYS_ADMIN; if this is a container, start it privileged")
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.ENOSPC):
		return f.fail("choose another --data-dir, on a disk that can be written")
	}
	return f.fail("choose a --data-dir on ext4, xfs, btrfs or tmpfs: an overlay cannot lie on every file system, on another overlay for one")
}

func tryOverlay(at string) (err error) {
	dir, err := os.MkdirTemp(at, "monopod-check-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, sub := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			return err
		}
	}
	return inThrowaway(unix.CLONE_NEWNS, func() error {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("make the mounts private: %w", err)
		}
		merged := filepath.Join(dir, "merged")
		options := fmt.Sprintf("lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work", dir, dir, dir)
		if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
			return fmt.Errorf("mount an overlay: %w", err)
		}
		defer func() { _ = unix.Unmount(merged, unix.MNT_DETACH) }()
		// The kernel mounts some overlays only to refuse to write to them.
		if err := os.WriteFile(filepath.Join(merged, "file"), nil, 0o600); err != nil {
			return fmt.Errorf("write through an overlay: %w", err)
		}
		return nil
	})
}

// readable looks whether a file can be read.
func readable(p Place) Result {
	name := "file " + p.Name
	f, err := os.Open(p.Path)
	if err != nil {
		return bad(name, "%v", err).fail("name another with %s", p.Flag)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.IsDir() {
		return bad(name, "%s is no file", p.Path).fail("name another with %s", p.Flag)
	}
	return ok(name, "%s", p.Path)
}

// Free space below which a node does not start, and below which it soon has pods to evict.
const (
	spaceNeeded = 256 << 20
	spaceWanted = 2 << 30
)

func space(dataDir string) Result {
	const name = "disk space"
	at := existing(dataDir)
	var st unix.Statfs_t
	if err := unix.Statfs(at, &st); err != nil {
		return bad(name, "%s: %v", at, err).fail("choose another --data-dir")
	}
	free, inodes := st.Bavail*uint64(st.Bsize), st.Ffree
	f := bad(name, "%d MiB free at %s", free>>20, at)
	switch {
	case free < spaceNeeded:
		return f.fail("free at least %d MiB there, or choose another --data-dir", spaceNeeded>>20)
	case st.Files > 0 && inodes < 10_000:
		return bad(name, "%d inodes free at %s", inodes, at).warn("an image has some thousand files: free some, or choose another --data-dir")
	case free < spaceWanted:
		return f.warn("enough for a few small images; %d MiB are better", spaceWanted>>20)
	}
	return ok(name, "%d MiB free at %s", free>>20, at)
}

// writable looks whether a directory can be written in, or made.
func writable(d Place) Result {
	name := "directory " + d.Name
	at := existing(d.Path)
	info, err := os.Stat(at)
	switch {
	case err != nil:
		return bad(name, "%s: %v", d.Path, err).fail("choose another with %s", d.Flag)
	case !info.IsDir():
		return bad(name, "%s: %s is not a directory", d.Path, at).fail("remove that file, or choose another with %s", d.Flag)
	}
	if err := tryFile(at); err != nil {
		return bad(name, "%s: no file can be made in %s: %v", d.Path, at, err).fail("make it writable, or choose another with %s", d.Flag)
	}
	if at != filepath.Clean(d.Path) {
		return ok(name, "%s (will be made)", d.Path)
	}
	return ok(name, "%s", d.Path)
}

// tryFile makes a file without a name, which needs no removal; where the file system has no such, one with a name.
func tryFile(dir string) error {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return unix.Close(fd)
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) {
		return err
	}
	f, err := os.CreateTemp(dir, "monopod-check-")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
