// Package mount mounts and unmounts what the runtime needs: overlays of image layers, tmpfs, bind mounts.
//
// Unmounting is idempotent and never follows a symbolic link in the last element. Mounting is not idempotent: a second mount on
// the same target is stacked upon the first. No function creates its target; one that fails leaves nothing mounted.
package mount

import (
	"errors"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// TmpfsOptions shape a tmpfs, which is always nosuid.
type TmpfsOptions struct {
	Size   uint64 // in bytes; 0: the kernel's default, half of the memory
	Inodes uint64 // 0: the kernel's default, one for two pages of the memory
	Mode   uint32 // of its root, as for chmod(2): 0o1777 has the sticky bit; 0: 0o1777
	NoExec bool
	// Devices: device nodes in it work.
	Devices bool
	// UID and GID own its root.
	UID, GID uint32
	// Label is the SELinux label of all that is in it; empty: what the policy says.
	Label string
}

// Tmpfs mounts a tmpfs.
func Tmpfs(target string, o TmpfsOptions) error {
	mode := o.Mode
	if mode == 0 {
		mode = 0o1777
	}
	data := fmt.Sprintf("mode=%04o", mode)
	if o.Size > 0 {
		data += fmt.Sprintf(",size=%d", o.Size)
	}
	if o.Inodes > 0 {
		data += fmt.Sprintf(",nr_inodes=%d", o.Inodes)
	}
	if o.UID != 0 || o.GID != 0 {
		data += fmt.Sprintf(",uid=%d,gid=%d", o.UID, o.GID)
	}
	data += labelOption(o.Label)
	flags := uintptr(unix.MS_NOSUID)
	if !o.Devices {
		flags |= unix.MS_NODEV
	}
	if o.NoExec {
		flags |= unix.MS_NOEXEC
	}
	if err := unix.Mount("tmpfs", target, "tmpfs", flags, data); err != nil {
		return fmt.Errorf("mount a tmpfs (%s) at %s: %w", data, target, err)
	}
	return nil
}

// labelOption is the option of mount(2) for a label, which may have commas in it.
func labelOption(label string) string {
	if label == "" {
		return ""
	}
	return `,context="` + label + `"`
}

// BindOptions shape a bind mount.
type BindOptions struct {
	Recursive bool // with what is mounted below the source
	ReadOnly  bool // all that is bound; needs Linux 5.12
}

// Bind makes the source visible at the target, with private propagation. Source and target are both directories or
// both not.
func Bind(source, target string, o BindOptions) error {
	bind, private, at := uintptr(unix.MS_BIND), uintptr(unix.MS_PRIVATE), uint(0)
	if o.Recursive {
		bind, private, at = bind|unix.MS_REC, private|unix.MS_REC, unix.AT_RECURSIVE
	}
	if err := unix.Mount(source, target, "", bind, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", source, target, err)
	}
	err := unix.Mount("", target, "", private, "")
	if err == nil && o.ReadOnly {
		// A remount would also do for a single mount, but it sets all flags of the mount anew; this sets one.
		err = unix.MountSetattr(unix.AT_FDCWD, target, at|unix.AT_SYMLINK_NOFOLLOW, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	}
	if errors.Is(err, unix.ENOSYS) {
		err = fmt.Errorf("read-only bind mounts need Linux 5.12: %w", errdefs.ErrNotImplemented)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("bind %s to %s: %w", source, target, err), detach(target))
	}
	return nil
}

// BindClean makes the source with all that is mounted below it visible at the target, but for what Isolate has set apart. It
// is for sources that hold isolated directories: a recursive bind mount leaves those out in this mount namespace, but not in
// each copy of it, because some kernels (Linux 6.18) forget that a mount is unbindable when they copy a mount namespace. So a
// container binds what BindClean has made. It should be detached as soon as the container has done so: while it is there, no directory
// can be removed on which something was mounted when it was made, wherever that is unmounted meanwhile. How it exchanges mounts with the source: private (the zero Propagation), Slave, or
// Shared as far as the source is. Only Detach and UnmountBelow undo it safely. The target should be on a mount of no peers.
func BindClean(source, target string, p Propagation) error {
	err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, "")
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("bind %s to %s: it is set apart (unbindable): %w", source, target, errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return fmt.Errorf("bind %s to %s: %w", source, target, err)
	}
	kind := uintptr(unix.MS_PRIVATE)
	switch {
	case p.Shared:
		return nil // a bind mount is a peer of its source
	case p.Slave:
		kind = unix.MS_SLAVE
	}
	if err := unix.Mount("", target, "", kind|unix.MS_REC, ""); err != nil {
		return errors.Join(fmt.Errorf("set the propagation of the mount at %s: %w", target, err), UnmountBelow(target))
	}
	return nil
}

// RecursiveReadOnly tells whether this kernel can make a mount read-only with all that is mounted below it (mount_setattr,
// Linux 5.12). It tries it on a mount that nobody sees.
func RecursiveReadOnly() bool {
	fd, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}) == nil
}

// Isolate makes the directory a mount point whose inside is this mount namespace's own: what is mounted there is not
// propagated to others, and is left out when somebody binds a directory above it recursively (a hostPath volume
// of "/"). Without it, such a volume would hold other containers' root file systems. Files that lie in the directory itself
// can no longer be bound either; what is mounted in it can. Isolate is idempotent; Unmount undoes it. See BindClean for
// its limits in other mount namespaces.
func Isolate(dir string) error {
	infos, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(dir))
	if err != nil {
		return fmt.Errorf("read the mounts: %w", err)
	}
	if slices.ContainsFunc(infos, func(m *mountinfo.Info) bool { return m.Optional == "unbindable" }) {
		return nil
	}
	if err := Bind(dir, dir, BindOptions{}); err != nil {
		return err
	}
	if err := unix.Mount("", dir, "", unix.MS_UNBINDABLE, ""); err != nil {
		return errors.Join(fmt.Errorf("make the mount at %s unbindable: %w", dir, err), detach(dir))
	}
	return nil
}

// Is tells whether the directory is a mount point.
func Is(dir string) (bool, error) {
	is, err := mountinfo.Mounted(dir)
	if err != nil {
		return false, fmt.Errorf("read the mounts: %w", err)
	}
	return is, nil
}

// Separate makes the directory a mount of its own with private propagation, so that what is mounted in it is neither sent to others nor counted among what is
// on the mount above: the kernel goes through all of that for each bind mount and each overlay of something there. Unlike what Isolate has
// set apart it can be bound, with all that is in it. Separate is idempotent, and makes whole what a kill has left half made; Unmount undoes it.
func Separate(dir string) error {
	is, err := Is(dir)
	if err != nil {
		return err
	}
	if !is {
		return Bind(dir, dir, BindOptions{})
	}
	if err := unix.Mount("", dir, "", unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mount at %s private: %w", dir, err)
	}
	return nil
}
