//go:build cgo

package spawn

import (
	"fmt"
	"os"
	"strings"

	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// attach moves a detached mount onto an open directory or file.
func attach(tree, onto int) error {
	if err := unix.MoveMount(tree, "", onto, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return os.NewSyscallError("move_mount", err)
	}
	return nil
}

// clone makes a detached copy of what is mounted at a path.
func clone(name string) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, &os.PathError{Op: "open_tree", Path: name, Err: err}
	}
	return fd, nil
}

// setAttr changes attributes and propagation of a mount, and with recursive of all below it.
func setAttr(tree int, recursive bool, attr unix.MountAttr) error {
	if attr == (unix.MountAttr{}) {
		return nil
	}
	flags := uint(unix.AT_EMPTY_PATH)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	if err := unix.MountSetattr(tree, "", flags, &attr); err != nil {
		return os.NewSyscallError("mount_setattr", err)
	}
	return nil
}

// newFS makes a file system, detached. data is the part of mount options that is for the file system itself, label the SELinux label of
// all its files, or empty.
func newFS(kind, source, data, label string, attrs int) (fd int, err error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("file system %s: %w", kind, os.NewSyscallError("fsopen", err))
	}
	defer unix.Close(fs)
	if source != "" {
		if err := unix.FsconfigSetString(fs, "source", source); err != nil {
			return -1, fmt.Errorf("file system %s: source %s: %w", kind, source, err)
		}
	}
	if attrs&unix.MOUNT_ATTR_RDONLY != 0 {
		data += ",ro" // the file system too, not only this mount of it
	}
	for option := range strings.SplitSeq(data, ",") {
		if option == "" {
			continue
		}
		key, value, has := strings.Cut(option, "=")
		if has {
			err = unix.FsconfigSetString(fs, key, value)
		} else {
			err = unix.FsconfigSetFlag(fs, key)
		}
		if err != nil {
			return -1, fmt.Errorf("file system %s: option %s: %w", kind, option, err)
		}
	}
	if label != "" {
		if err := unix.FsconfigSetString(fs, "context", label); err != nil {
			return -1, fmt.Errorf("file system %s: label %s: %w", kind, label, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("file system %s: %w", kind, os.NewSyscallError("fsconfig", err))
	}
	if fd, err = unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attrs); err != nil {
		return -1, fmt.Errorf("file system %s: %w", kind, os.NewSyscallError("fsmount", err))
	}
	return fd, nil
}

// attrsOf translates the flags of mount(2) into those of a mount's attributes.
func attrsOf(flags int) (attrs uint64) {
	for _, f := range []struct {
		ms   int
		attr uint64
	}{
		{unix.MS_RDONLY, unix.MOUNT_ATTR_RDONLY}, {unix.MS_NOSUID, unix.MOUNT_ATTR_NOSUID}, {unix.MS_NODEV, unix.MOUNT_ATTR_NODEV},
		{unix.MS_NOEXEC, unix.MOUNT_ATTR_NOEXEC}, {unix.MS_NODIRATIME, unix.MOUNT_ATTR_NODIRATIME},
		{unix.MS_NOSYMFOLLOW, unix.MOUNT_ATTR_NOSYMFOLLOW},
	} {
		if flags&f.ms != 0 {
			attrs |= f.attr
		}
	}
	switch { // an enumeration, of which relatime is 0
	case flags&unix.MS_STRICTATIME != 0:
		attrs |= unix.MOUNT_ATTR_STRICTATIME
	case flags&unix.MS_NOATIME != 0:
		attrs |= unix.MOUNT_ATTR_NOATIME
	}
	return attrs
}

const atimeFlags = unix.MS_NOATIME | unix.MS_RELATIME | unix.MS_STRICTATIME

// bindAttr is what a bind mount with flags becomes: those that are set and no others, as mount(8) has it. Times are kept unless
// they are named.
func bindAttr(m *configs.Mount) (attr unix.MountAttr) {
	flags := m.Flags &^ (unix.MS_BIND | unix.MS_REC)
	if flags == 0 && m.ClearedFlags == 0 {
		return attr
	}
	attr.Attr_set = attrsOf(flags)
	attr.Attr_clr = (unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC | unix.MOUNT_ATTR_NOSYMFOLLOW) &^ attr.Attr_set
	if flags&atimeFlags != 0 {
		attr.Attr_clr |= unix.MOUNT_ATTR__ATIME
	}
	if m.ClearedFlags&unix.MS_NODIRATIME != 0 {
		attr.Attr_clr |= unix.MOUNT_ATTR_NODIRATIME
	}
	return attr
}
