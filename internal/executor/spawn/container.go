//go:build cgo

package spawn

import (
	"errors"
	"fmt"
	"os"
	"path"

	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// container is the place that is made for a container's first process. Its methods run on the thread that becomes it.
type container struct {
	config  *configs.Config
	cgroups hierarchies
	plan    *plan
	root    int // O_PATH, the root of the container
}

// enter makes this thread's mount namespace that of the container, with its root file system and mounts, as seen from inside.
func (c *container) enter(s *Spawner) error {
	sources, err := openSources(c.config.Mounts)
	if err != nil {
		return err
	}
	defer closeSources(sources)
	if err := c.cgroups.open(); err != nil {
		return err
	}
	defer c.cgroups.close()
	rootfs, err := clone(unix.AT_FDCWD, c.config.Rootfs, true)
	if err != nil {
		return fmt.Errorf("root file system: %w", err)
	}
	defer unix.Close(rootfs)
	propagation := uint64(unix.MS_PRIVATE)
	if c.config.RootPropagation&unix.MS_SLAVE != 0 {
		propagation = unix.MS_SLAVE
	}
	if err := setAttr(rootfs, true, unix.MountAttr{Propagation: propagation}); err != nil {
		return fmt.Errorf("root file system: %w", err)
	}
	if err := joinNamespaces(c.config.Namespaces); err != nil {
		return err
	}
	if len(c.config.Networks) > 0 {
		if err := loopbackUp(); err != nil {
			return fmt.Errorf("loopback interface: %w", err)
		}
	}
	if err := s.enterEmpty(); err != nil {
		return err
	}
	if err := c.attachRoot(rootfs); err != nil {
		return fmt.Errorf("root file system: %w", err)
	}
	defer unix.Close(c.root)
	for _, src := range sources {
		if err := c.mount(src); err != nil {
			return fmt.Errorf("mount %s at %s: %w", src.Source, src.Destination, err)
		}
	}
	if !coversDev(c.config.Mounts) {
		if err := c.populateDev(); err != nil {
			return err
		}
	}
	if err := pivot(c.root); err != nil {
		return err
	}
	return c.finish()
}

// attachRoot mounts the root file system where the empty namespace has room for it.
func (c *container) attachRoot(rootfs int) error {
	room, err := unix.Open("/"+emptyRoom, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(room)
	if err := attach(rootfs, room); err != nil {
		return err
	}
	c.root, err = unix.Open("/"+emptyRoom, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return err
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

func coversDev(mounts []*configs.Mount) bool {
	for _, m := range mounts {
		if m.Device == "bind" && path.Clean("/"+m.Destination) == "/dev" {
			return true
		}
	}
	return false
}

// populateDev makes the device nodes and links in /dev.
func (c *container) populateDev() error {
	for _, d := range c.config.Devices {
		if d.Path == "" || path.Clean(d.Path) == "/dev/ptmx" {
			continue // only a rule for the cgroup; or the link below
		}
		if err := c.mknod(d); err != nil {
			return fmt.Errorf("device %s: %w", d.Path, err)
		}
	}
	dev, err := mkdirIn(c.root, "dev", 0o755)
	if err != nil {
		return err
	}
	defer unix.Close(dev)
	if err := unix.Unlinkat(dev, "ptmx", 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("/dev/ptmx: %w", err)
	}
	links := [][2]string{{"pts/ptmx", "ptmx"}, {"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"}, {"/proc/self/fd/2", "stderr"}}
	if hasKcore {
		links = append(links, [2]string{"/proc/kcore", "core"})
	}
	for _, l := range links {
		if err := unix.Symlinkat(l[0], dev, l[1]); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("/dev/%s: %w", l[1], err)
		}
	}
	return nil
}

var hasKcore = func() bool { _, err := os.Stat("/proc/kcore"); return err == nil }()

func (c *container) mknod(d *devices.Device) error {
	kinds := map[devices.Type]uint32{devices.BlockDevice: unix.S_IFBLK, devices.CharDevice: unix.S_IFCHR, devices.FifoDevice: unix.S_IFIFO}
	kind, ok := kinds[d.Type]
	if !ok {
		return fmt.Errorf("%c is no type of a device node", d.Type)
	}
	number, err := d.Mkdev()
	if err != nil {
		return err
	}
	parent, base := path.Split(relative(d.Path))
	dir, err := mkdirIn(c.root, parent, 0o755)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	mode := uint32(d.FileMode.Perm())
	err = unix.Mknodat(dir, base, kind|mode, int(number))
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if errors.Is(err, unix.EPERM) {
		return c.bindDevice(dir, base, d)
	}
	if err != nil {
		return os.NewSyscallError("mknodat", err)
	}
	// What was made is looked at before it is changed: the directory may be a volume, in which others are at work.
	fd, err := unix.Openat(dir, base, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != kind || kind != unix.S_IFIFO && st.Rdev != number {
		return errors.New("it was replaced while it was made")
	}
	if err := unix.Fchownat(fd, "", int(d.Uid), int(d.Gid), unix.AT_EMPTY_PATH); err != nil {
		return os.NewSyscallError("fchownat", err)
	}
	return nil
}

// bindDevice stands in for mknod on a host that forbids it.
func (c *container) bindDevice(dir int, base string, d *devices.Device) error {
	tree, err := clone(unix.AT_FDCWD, d.Path, false)
	if err != nil {
		return fmt.Errorf("this host forbids to make device nodes: %w", err)
	}
	defer unix.Close(tree)
	fd, err := unix.Openat(dir, base, unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return attach(tree, fd)
}

// finish is what is done from inside: nothing of the host is in reach any more.
func (c *container) finish() error {
	if p := c.config.RootPropagation; p&unix.MS_SHARED != 0 {
		if err := c.atRoot(p&unix.MS_REC != 0, unix.MountAttr{Propagation: unix.MS_SHARED}); err != nil {
			return fmt.Errorf("propagation of the root: %w", err)
		}
	}
	for _, m := range c.config.Mounts {
		if m.Flags&unix.MS_RDONLY != 0 && m.Device == "tmpfs" {
			if err := setAttrAt(m.Destination, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
				return fmt.Errorf("make %s read-only: %w", m.Destination, err)
			}
		}
	}
	return nil
}

func (c *container) atRoot(recursive bool, attr unix.MountAttr) error {
	fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return setAttr(fd, recursive, attr)
}

func setAttrAt(name string, attr unix.MountAttr) error {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return setAttr(fd, false, attr)
}

func cover(tree int, name string) error {
	onto, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(onto)
	return attach(tree, onto)
}

func isNull(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
}

func checkNull(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if !isNull(&st) {
		return errors.New("the container's /dev/null is something else")
	}
	return nil
}

// openNull opens the container's /dev/null.
func openNull() (int, error) {
	fd, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: "/dev/null", Err: err}
	}
	if err := checkNull(fd); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, unix.SetNonblock(fd, false)
}
