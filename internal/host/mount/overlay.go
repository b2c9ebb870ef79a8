package mount

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Overlay mounts an overlay file system. The lower directories are ordered topmost first, as overlayfs orders them;
// there must be at least one. With upper and work both empty the mount is read-only. label is the SELinux label of all that is seen in
// it; empty: each file has its own.
//
// From Linux 6.8 on there may be as many layers as overlayfs takes (500). Before, all options must fit into one page,
// which 200 layers do however long their paths.
func Overlay(target string, lower []string, upper, work, label string) error {
	switch {
	case len(lower) == 0:
		return fmt.Errorf("overlay at %s: no lower directory: %w", target, errdefs.ErrInvalidArgument)
	case (upper == "") != (work == ""):
		return fmt.Errorf("overlay at %s: upper %q and work %q: give both, or none for a read-only mount: %w", target, upper, work, errdefs.ErrInvalidArgument)
	case upper == "" && len(lower) == 1 && label != "": // a bind mount has no label of its own
		return fmt.Errorf("overlay at %s: a read-only mount with a label needs two lower directories: %w", target, errdefs.ErrInvalidArgument)
	case upper == "" && len(lower) == 1: // which overlayfs refuses, for there would be nothing to overlay
		return Bind(lower[0], target, BindOptions{ReadOnly: true})
	}
	err := overlayByContext(target, lower, upper, work, label)
	if errors.Is(err, errNoContext) {
		err = overlayByOptions(target, lower, upper, work, label)
	}
	if err != nil {
		return fmt.Errorf("mount an overlay of %d layers at %s: %w", len(lower), target, err)
	}
	return nil
}

// errNoContext: this kernel does not take overlayfs's layers one by one, or there is something amiss with them. Kernels
// say EINVAL to either, some when the layer is added and some (before 6.5, which keep unknown options) at the end. So
// the other way is tried, and tells what was amiss.
var errNoContext = errors.New("layers are not taken one by one")

// overlayByContext uses the mount API of file descriptors, to which layers are added one by one.
func overlayByContext(target string, lower []string, upper, work, label string) error {
	fd, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return errNoContext
	}
	defer unix.Close(fd)
	var paths shortPaths
	defer paths.close()

	set := func(key, path string) error {
		short, err := paths.of(path)
		if err != nil {
			return err
		}
		if err := unix.FsconfigSetString(fd, key, short); err != nil {
			return fmt.Errorf("%s %s: %w%s", strings.TrimSuffix(key, "+"), path, err, messages(fd))
		}
		return nil
	}
	for _, dir := range lower {
		err := set("lowerdir+", dir)
		if errors.Is(err, unix.EINVAL) {
			return errNoContext
		}
		if err != nil {
			return err
		}
	}
	attributes := unix.MOUNT_ATTR_RDONLY
	if upper != "" {
		attributes = 0
		if err := errors.Join(set("upperdir", upper), set("workdir", work)); err != nil {
			return err
		}
	}
	if label != "" {
		if err := unix.FsconfigSetString(fd, "context", label); err != nil {
			return fmt.Errorf("context %s: %w%s", label, err, messages(fd))
		}
	}
	// What /proc/mounts shows as the device.
	if err := unix.FsconfigSetString(fd, "source", "overlay"); err != nil {
		return err
	}
	if err := unix.FsconfigCreate(fd); errors.Is(err, unix.EINVAL) {
		return errNoContext
	} else if err != nil {
		return fmt.Errorf("%w%s", err, messages(fd))
	}
	mnt, err := unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC, attributes)
	if err != nil {
		return fmt.Errorf("fsmount: %w%s", err, messages(fd))
	}
	defer unix.Close(mnt)
	if err := unix.MoveMount(mnt, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("move_mount: %w", err)
	}
	return nil
}

// messages returns what the kernel says to its errors, which tell more than their numbers.
func messages(fd int) string {
	var all strings.Builder
	buf := make([]byte, 512)
	for {
		n, err := unix.Read(fd, buf)
		if err != nil || n == 0 {
			return all.String()
		}
		all.WriteString(": " + strings.TrimSpace(strings.TrimPrefix(string(buf[:n]), "e ")))
	}
}

// overlayByOptions uses mount(2), whose options must fit into one page.
func overlayByOptions(target string, lower []string, upper, work, label string) error {
	var paths shortPaths
	defer paths.close()
	data, err := options(&paths, lower, upper, work, label)
	if err == nil && len(data) >= unix.Getpagesize() {
		paths.always = true
		data, err = options(&paths, lower, upper, work, label)
	}
	if err != nil {
		return err
	}
	if len(data) >= unix.Getpagesize() {
		return fmt.Errorf("the options take %d bytes, and a kernel before Linux 6.8 takes less than %d: use an image of fewer layers: %w",
			len(data), unix.Getpagesize(), errdefs.ErrFailedPrecondition)
	}
	flags := uintptr(0)
	if upper == "" {
		flags = unix.MS_RDONLY
	}
	err = unix.Mount("overlay", target, "overlay", flags, data)
	if errors.Is(err, unix.ENOENT) {
		// Tell which one is missing.
		for _, dir := range slices.Concat(lower, []string{upper, work, target}) {
			if dir == "" {
				continue
			}
			if _, serr := os.Stat(dir); serr != nil {
				return serr
			}
		}
	}
	return err
}

func options(paths *shortPaths, lower []string, upper, work, label string) (string, error) {
	short := make([]string, 0, len(lower)+2)
	for _, p := range slices.Concat(lower, []string{upper, work}) {
		if p == "" {
			continue
		}
		s, err := paths.of(p)
		if err != nil {
			return "", err
		}
		short = append(short, s)
	}
	data := "lowerdir=" + strings.Join(short[:len(lower)], ":")
	if upper != "" {
		data += ",upperdir=" + short[len(lower)] + ",workdir=" + short[len(lower)+1]
	}
	return data + labelOption(label), nil
}

// shortPaths gives directories names that the kernel takes as an option's value: at most 255 bytes, and free of the
// characters that separate options and layers. A path that is not so is opened and named by its descriptor.
type shortPaths struct {
	always bool // for all paths
	files  []*os.File
}

func (s *shortPaths) of(path string) (string, error) {
	if !s.always && len(path) < 256 && !strings.ContainsAny(path, `:,\`) {
		return path, nil
	}
	f, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", err
	}
	s.files = append(s.files, f)
	return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())), nil
}

func (s *shortPaths) close() {
	for _, f := range s.files {
		f.Close()
	}
}
