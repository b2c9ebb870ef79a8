//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/test/vm/guest"
)

// rootDevice is the virtio-blk disk with the root file system (ext4).
const rootDevice = "/dev/vda"

type mount struct {
	source, target, fsType string
	flags                  uintptr
	options                string
}

func mountEach(mounts []mount) error {
	for _, m := range mounts {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.source, m.target, m.fsType, m.flags, m.options); err != nil {
			return fmt.Errorf("mount %s at %s: %w", m.fsType, m.target, err)
		}
	}
	return nil
}

// mountInitial mounts what loading modules and finding devices takes.
func mountInitial() error {
	return mountEach([]mount{
		{"proc", "/proc", "proc", 0, ""},
		{"sysfs", "/sys", "sysfs", 0, ""},
		{"devtmpfs", "/dev", "devtmpfs", 0, ""},
	})
}

// loadModules loads the modules of the initial ramdisk, whose list has each after those that it depends on.
func loadModules() error {
	f, err := os.Open(guest.ModuleList)
	if err != nil {
		return err
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		module, err := os.Open(sc.Text())
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(module.Fd()), "", 0)
		module.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load %s: %w", sc.Text(), err)
		}
	}
	return sc.Err()
}

// switchRoot makes the root disk the root, as switch_root(8) does: the mount is moved onto the root, since the root of an
// initial ramdisk can be neither left by pivot_root nor unmounted.
func switchRoot() error {
	const newRoot = "/newroot"
	if err := waitFor(rootDevice); err != nil {
		return err
	}
	if err := mountEach([]mount{{rootDevice, newRoot, "ext4", unix.MS_NOATIME, ""}}); err != nil {
		return err
	}
	for _, dir := range []string{"/proc", "/sys", "/dev"} {
		if err := os.MkdirAll(newRoot+dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(dir, newRoot+dir, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s: %w", dir, err)
		}
	}
	if err := os.Chdir(newRoot); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("chroot: %w", err)
	}
	return os.Chdir("/")
}

// waitFor waits for a device node: a disk is found a moment after its driver is loaded.
func waitFor(path string) error {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) { // there is no udev yet whose event could be awaited
		_, err := os.Stat(path)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no root disk: %w", err)
		}
	}
}

// mountAll mounts what a booted Linux has, with cgroup v2 alone, as systemd mounts it. The node is expected to enable the controllers that it
// needs: nothing is prepared for it.
func mountAll() error {
	const nosuid = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	err := mountEach([]mount{
		{"devpts", "/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "gid=5,mode=620,ptmxmode=666"},
		{"tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"securityfs", "/sys/kernel/security", "securityfs", nosuid, ""},
		{"cgroup2", "/sys/fs/cgroup", "cgroup2", nosuid, "nsdelegate,memory_recursiveprot"},
		{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"},
	})
	if err != nil {
		return err
	}
	if err := mountQueues(); err != nil {
		return err
	}
	// As systemd does, so that mounts made in the machine propagate as they do elsewhere.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share the mounts: %w", err)
	}
	for link, target := range map[string]string{"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0", "/dev/stdout": "/proc/self/fd/1", "/dev/stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(target, link); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// mountQueues mounts the message queues, which systemd leaves to a unit.
func mountQueues() error {
	return mountEach([]mount{{"mqueue", "/dev/mqueue", "mqueue", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""}})
}

// configure gives the machine its name and brings loopback up.
func configure() error {
	name, err := os.ReadFile("/etc/hostname")
	if err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(strings.TrimSpace(string(name)))); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, ifr); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	return nil
}
