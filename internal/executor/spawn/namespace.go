//go:build cgo

package spawn

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// emptyRoom is the one directory of the empty mount namespace: a root file system is mounted there before it becomes the root (place.c has its
// name, too).
const emptyRoom = "root"

// newEmpty makes a mount namespace with nothing in it but an empty read-only directory, and returns a descriptor of it. Copied
// for each container it costs the same whatever the host has mounted. scratch is any directory.
func newEmpty(scratch string) (ns int, err error) {
	err = onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return os.NewSyscallError("unshare", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("make all mounts private: %w", err)
		}
		tree, err := newFS("tmpfs", "monopod", "mode=0555,size=4k,nr_inodes=4", "", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
		if err != nil {
			return err
		}
		defer unix.Close(tree)
		if err := unix.Mkdirat(tree, emptyRoom, 0o555); err != nil {
			return os.NewSyscallError("mkdirat", err)
		}
		if err := setAttr(tree, false, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
			return err
		}
		ns, err = unix.Open("/proc/thread-self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("open", err)
		}
		if err := cover(tree, scratch); err != nil {
			return err
		}
		root, err := unix.Open(scratch, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("open", err)
		}
		defer unix.Close(root)
		return pivot(root)
	})
	if err != nil {
		return -1, fmt.Errorf("make an empty mount namespace: %w", err)
	}
	return ns, nil
}

// pivot makes the directory, which is a mount's root, the root of the namespace, and gives the old one up.
func pivot(root int) error {
	if err := unix.Fchdir(root); err != nil {
		return os.NewSyscallError("fchdir", err)
	}
	// With both the same the old root comes to lie on the new one, and no directory is needed to put it in.
	if err := unix.PivotRoot(".", "."); err != nil {
		return os.NewSyscallError("pivot_root", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return os.NewSyscallError("umount2", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return os.NewSyscallError("chdir", err)
	}
	return nil
}

// cover mounts a detached mount at a path.
func cover(tree int, name string) error {
	onto, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(onto)
	return attach(tree, onto)
}
