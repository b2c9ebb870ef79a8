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

// TmpfsOptions shape a tmpfs, which is always nosuid and nodev.
type TmpfsOptions struct {
	Size   uint64 // in bytes; 0: the kernel's default, half of the memory
	Mode   uint32 // of its root, as for chmod(2): 0o1777 has the sticky bit; 0: 0o1777
	NoExec bool
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
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	if o.NoExec {
		flags |= unix.MS_NOEXEC
	}
	if err := unix.Mount("tmpfs", target, "tmpfs", flags, data); err != nil {
		return fmt.Errorf("mount a tmpfs (%s) at %s: %w", data, target, err)
	}
	return nil
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

// Isolate makes the directory a mount point whose inside is this mount namespace's own: what is mounted there is not
// propagated to others, and is left out when somebody binds a directory above it recursively (a hostPath volume
// of "/"). Without it, such a volume would hold other containers' root file systems. Files that lie in the directory itself
// can no longer be bound either; what is mounted in it can. Isolate is idempotent; Unmount undoes it.
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
