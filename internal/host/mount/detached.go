package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Detached is a mount that has no place yet: nobody sees it while it is made what it is to be, and it ends with Close, or with this process, unless Attach has given
// it a place. Linux 5.12.
type Detached struct{ fd int }

// Clone makes one of what is seen at an open file or directory, which may have been opened by O_PATH, without what is mounted below. It exchanges mounts with nobody, or as slave says, receives
// those that come to its source.
func Clone(fd int, slave bool) (*Detached, error) {
	tree, err := unix.OpenTree(fd, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if errors.Is(err, unix.EINVAL) {
		return nil, fmt.Errorf("open_tree: it is set apart (unbindable): %w", errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return nil, fmt.Errorf("open_tree: %w", err)
	}
	d := &Detached{tree}
	attr := &unix.MountAttr{Propagation: unix.MS_PRIVATE}
	if slave {
		attr.Propagation = unix.MS_SLAVE
	}
	if err := d.set(attr); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Detached) set(attr *unix.MountAttr) error {
	if err := unix.MountSetattr(d.fd, "", unix.AT_EMPTY_PATH, attr); err != nil {
		return fmt.Errorf("mount_setattr: %w", err)
	}
	return nil
}

// flags are the options of a mount, as opposed to those of a file system: what each sets, and what it takes back.
var flags = map[string]struct{ set, clear uint64 }{
	"defaults":    {},
	"ro":          {set: unix.MOUNT_ATTR_RDONLY},
	"rw":          {clear: unix.MOUNT_ATTR_RDONLY},
	"nosuid":      {set: unix.MOUNT_ATTR_NOSUID},
	"suid":        {clear: unix.MOUNT_ATTR_NOSUID},
	"nodev":       {set: unix.MOUNT_ATTR_NODEV},
	"dev":         {clear: unix.MOUNT_ATTR_NODEV},
	"noexec":      {set: unix.MOUNT_ATTR_NOEXEC},
	"exec":        {clear: unix.MOUNT_ATTR_NOEXEC},
	"nosymfollow": {set: unix.MOUNT_ATTR_NOSYMFOLLOW},
	"symfollow":   {clear: unix.MOUNT_ATTR_NOSYMFOLLOW},
	"nodiratime":  {set: unix.MOUNT_ATTR_NODIRATIME},
	"diratime":    {clear: unix.MOUNT_ATTR_NODIRATIME},
	"relatime":    {set: unix.MOUNT_ATTR_RELATIME, clear: unix.MOUNT_ATTR__ATIME},
	"atime":       {set: unix.MOUNT_ATTR_RELATIME, clear: unix.MOUNT_ATTR__ATIME},
	"noatime":     {set: unix.MOUNT_ATTR_NOATIME, clear: unix.MOUNT_ATTR__ATIME},
	"strictatime": {set: unix.MOUNT_ATTR_STRICTATIME, clear: unix.MOUNT_ATTR__ATIME},
}

// Flags parts the options of mount(8): those of a mount, and those of its file system.
func Flags(options []string) (ofMount, ofFileSystem []string) {
	for _, o := range options {
		if _, known := flags[o]; known {
			ofMount = append(ofMount, o)
		} else {
			ofFileSystem = append(ofFileSystem, o)
		}
	}
	return ofMount, ofFileSystem
}

// Options sets options, of those that Flags says to be a mount's; the later of two counts.
func (d *Detached) Options(options ...string) error {
	attr := &unix.MountAttr{}
	for _, o := range options {
		f, known := flags[o]
		if !known {
			return fmt.Errorf("%q is no option of a mount: %w", o, errdefs.ErrInvalidArgument)
		}
		// Those of atime are values of one field, which the kernel wants cleared for one of them to be set.
		attr.Attr_set = attr.Attr_set&^f.clear | f.set
		attr.Attr_clr = attr.Attr_clr&^(f.set&^unix.MOUNT_ATTR__ATIME) | f.clear
	}
	if attr.Attr_set|attr.Attr_clr == 0 {
		return nil
	}
	return d.set(attr)
}

// Root opens the root of the mount to be read.
func (d *Detached) Root() (*os.File, error) {
	fd, err := unix.Openat(d.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "the root of a mount", Err: err}
	}
	return os.NewFile(uintptr(fd), "."), nil
}

// Attach gives the mount its place, an existing directory, or a file where the mount is one.
func (d *Detached) Attach(target string) error {
	if err := unix.MoveMount(d.fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "move_mount", Path: target, Err: err}
	}
	return nil
}

// Close ends the mount, if it has no place.
func (d *Detached) Close() error { return unix.Close(d.fd) }

// IsPoint tells whether something is mounted at the path itself, without asking the server of a file system and without following a link. Nothing there is no mount.
func IsPoint(path string) (bool, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return false, nil
	case err == nil && st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0:
		return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
	}
	// The kernel does not tell, or the mount's own server does not.
	points, berr := Below(filepath.Dir(path))
	return slices.Contains(points, path), berr
}
