//go:build cgo

package spawn

import (
	"fmt"
	"os"

	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// emptyRoom is the one directory of the empty mount namespace: a root file system is mounted there before it becomes the root.
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

// enterEmpty gives this thread a mount namespace of its own, a copy of the empty one.
func (s *Spawner) enterEmpty() error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // root, working directory and umask are this thread's
		return os.NewSyscallError("unshare", err)
	}
	unix.Umask(0) // what is made gets the mode that is given
	if err := unix.Setns(s.empty, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the empty mount namespace: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	return nil
}

// joinable are the namespaces that a thread enters for its child; the PID namespace is the child's only.
var joinable = []struct {
	kind configs.NamespaceType
	flag int
}{
	{configs.NEWNET, unix.CLONE_NEWNET}, {configs.NEWIPC, unix.CLONE_NEWIPC}, {configs.NEWUTS, unix.CLONE_NEWUTS}, {configs.NEWPID, unix.CLONE_NEWPID},
}

// joinNamespaces enters the namespaces that are given by path, and makes those that are new. The mount namespace is not among
// them; a new cgroup namespace is made by the stub, once it is in its cgroup.
func joinNamespaces(all configs.Namespaces) error {
	for _, n := range joinable {
		if !all.Contains(n.kind) {
			continue
		}
		path := all.PathOf(n.kind)
		if path == "" {
			if err := unix.Unshare(n.flag); err != nil {
				return fmt.Errorf("make a namespace of type %s: %w", configs.NsName(n.kind), err)
			}
			continue
		}
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: path, Err: err}
		}
		err = unix.Setns(fd, n.flag)
		unix.Close(fd)
		if err != nil {
			return fmt.Errorf("join the namespace %s: %w", path, err)
		}
	}
	return nil
}

// loopbackUp switches the loopback interface of this thread's network namespace on.
func loopbackUp() error {
	sock, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(sock)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return os.NewSyscallError("ioctl", unix.IoctlIfreq(sock, unix.SIOCSIFFLAGS, lo))
}
