package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// IDMap makes the source visible at the target with its owners translated: what belongs to id n on the file system belongs to
// id n of the user namespace. Mounts below the source are left out. The source's file system must be able to (Linux 5.12,
// and not all of them); if not, the error is FailedPrecondition.
func IDMap(source, target string, userns *os.File) error {
	fd, err := openIDMapped(source, userns)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount %s at %s: %w", source, target, err)
	}
	return nil
}

// CheckIDMap tells whether IDMap can do it. It tries it on a mount that nobody sees.
func CheckIDMap(source string, userns *os.File) error {
	fd, err := openIDMapped(source, userns)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// openIDMapped makes a mount of the source that is nowhere yet.
func openIDMapped(source string, userns *os.File) (fd int, err error) {
	fd, err = unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("open_tree %s: %w", source, noSuchCall(err))
	}
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns.Fd()), Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, attr); err != nil {
		unix.Close(fd)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) { // EPERM: it is translated already, or of a kind that must not be
			err = fmt.Errorf("its file system cannot (in this kernel): %w: %w", err, errdefs.ErrFailedPrecondition)
		}
		return -1, fmt.Errorf("translate the owners of %s: %w", source, noSuchCall(err))
	}
	return fd, nil
}

func noSuchCall(err error) error {
	if errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("id-mapped mounts need Linux 5.12: %w: %w", err, errdefs.ErrFailedPrecondition)
	}
	return err
}

// OverlayIDMapped mounts an overlay as Overlay does, whose lower layers have their owners translated into those of the user
// namespace. The upper directory is as it is: it should belong to the namespace's root. The scratch directory must exist and
// be empty; it is so again afterwards. Overlays can do that since Linux 5.19.
func OverlayIDMapped(target string, lower []string, upper, work, label string, userns *os.File, scratch string) (err error) {
	sources, parts, err := common(lower)
	if err != nil {
		return fmt.Errorf("overlay at %s: %w", target, err)
	}
	mounted := false
	defer func() {
		// The overlay has mounts of its own of the sources.
		err = errors.Join(err, empty(scratch, len(sources)))
		if err != nil && mounted {
			err = errors.Join(err, Unmount(target))
		}
	}()
	for i, source := range sources {
		at := filepath.Join(scratch, strconv.Itoa(i))
		if err := os.Mkdir(at, 0o700); err != nil {
			return err
		}
		if err := IDMap(source, at, userns); err != nil {
			return fmt.Errorf("overlay at %s: %w", target, err)
		}
	}
	layers := make([]string, len(parts))
	for i, p := range parts {
		layers[i] = filepath.Join(scratch, strconv.Itoa(p.source), p.below)
	}
	err = Overlay(target, layers, upper, work, label)
	mounted = err == nil
	return err
}

// empty undoes what OverlayIDMapped has made in its scratch directory.
func empty(scratch string, n int) error {
	var errs []error
	for i := range n {
		at := filepath.Join(scratch, strconv.Itoa(i))
		err := Unmount(at)
		if err == nil {
			err = os.Remove(at)
		}
		if err != nil && !os.IsNotExist(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// part is a layer: where it lies below which source.
type part struct {
	source int
	below  string
}

// common finds the fewest directories that hold all layers: the directory above all of them, when they are on one mount with it.
func common(layers []string) (sources []string, parts []part, err error) {
	if len(layers) == 0 {
		return nil, nil, fmt.Errorf("no lower directory: %w", errdefs.ErrInvalidArgument)
	}
	top := layers[0]
	for _, l := range layers {
		for l != top && !strings.HasPrefix(l, strings.TrimSuffix(top, "/")+"/") {
			top = filepath.Dir(top)
		}
	}
	same := len(layers) > 1
	var at uint64
	if same {
		if at, err = mountID(top); err != nil {
			return nil, nil, err
		}
	}
	for i, l := range layers {
		if same {
			id, err := mountID(l)
			if err != nil {
				return nil, nil, err
			}
			same = id == at
		}
		sources, parts = append(sources, l), append(parts, part{source: i})
	}
	if !same {
		return sources, parts, nil
	}
	for i, l := range layers {
		below, err := filepath.Rel(top, l)
		if err != nil {
			return nil, nil, err
		}
		parts[i] = part{below: below}
	}
	return []string{top}, parts, nil
}

// mountID tells which mount holds a path.
func mountID(path string) (uint64, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_MNT_ID, &st); err != nil {
		return 0, &os.PathError{Op: "statx", Path: path, Err: err}
	}
	return st.Mnt_id, nil
}

// TryIDMapped finds out whether the host can give containers with user namespaces their files: overlays of translated
// layers that lie in the directory, and translated memory-backed volumes. It tries that in a mount namespace that ends with the call.
// uid is the id of the host that the user namespace maps 0 to. The error says what cannot be done. One call at a time works in a
// directory.
func TryIDMapped(dir string, userns *os.File, uid uint32) (err error) {
	dir = filepath.Join(dir, "monopod-check-idmap")
	if err := os.RemoveAll(dir); err != nil { // a kill has left it; the mounts have ended with their namespace
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, sub := range []string{"a", "b", "upper", "work", "merged", "scratch"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "b", "file"), nil, 0o644); err != nil {
		return err
	}
	done := make(chan error, 1)
	try := func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("make a mount namespace: %w", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("make the mounts private: %w", err)
		}
		return tryIDMapped(dir, userns, uid)
	}
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine, and the mounts with it
		if unix.Gettid() != unix.Getpid() {
			done <- try()
			return
		}
		// The main thread never ends; it is held here, so that another is found.
		defer runtime.UnlockOSThread()
		other := make(chan error, 1)
		go func() {
			runtime.LockOSThread()
			other <- try()
		}()
		done <- <-other
	}()
	return <-done
}

func tryIDMapped(dir string, userns *os.File, uid uint32) error {
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := OverlayIDMapped(in("merged"), []string{in("a"), in("b")}, in("upper"), in("work"), "", userns, in("scratch")); err != nil {
		return fmt.Errorf("overlays of id-mapped layers (Linux 5.19): %w", err)
	}
	defer func() { _ = Unmount(in("merged")) }()
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(in("merged"), "file"), &st); err != nil {
		return err
	}
	if st.Uid != uid {
		return fmt.Errorf("overlays of id-mapped layers (Linux 5.19): a file of id 0 has id %d, not %d: %w", st.Uid, uid, errdefs.ErrFailedPrecondition)
	}
	if err := Tmpfs(in("a"), TmpfsOptions{Size: 1 << 20}); err != nil {
		return err
	}
	defer func() { _ = Unmount(in("a")) }()
	if err := IDMap(in("a"), in("b"), userns); err != nil {
		return fmt.Errorf("id-mapped tmpfs (Linux 6.3): %w", err)
	}
	return Unmount(in("b"))
}
