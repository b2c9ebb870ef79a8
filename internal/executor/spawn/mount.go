//go:build cgo

package spawn

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
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

// clone makes a detached copy of what is mounted at a path, seen from dir.
func clone(dir int, name string, recursive bool) (int, error) {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	fd, err := unix.OpenTree(dir, name, flags)
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

// labelDir labels the root of a detached mount; no label is none.
func labelDir(tree int, label string) error {
	if label == "" {
		return nil
	}
	dir, err := unix.Openat(tree, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("openat", err)
	}
	defer unix.Close(dir)
	if err := unix.Fsetxattr(dir, "security.selinux", []byte(label), 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
		return fmt.Errorf("label %s: %w", label, err)
	}
	return nil
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

// source is a mount whose source was opened in the host's mount namespace: a detached copy for a bind mount.
type source struct {
	*configs.Mount
	tree int // -1: a new file system
	dir  bool
}

// openSources opens what is bound into the container, before the host's mounts are out of sight.
func openSources(mounts []*configs.Mount) (all []source, err error) {
	defer func() {
		if err != nil {
			closeSources(all)
		}
	}()
	for _, m := range mounts {
		s := source{Mount: m, tree: -1, dir: true}
		if m.Device == "bind" {
			if s.tree, s.dir, err = openSource(m); err != nil {
				return all, fmt.Errorf("mount %s at %s: %w", m.Source, m.Destination, err)
			}
		}
		all = append(all, s)
	}
	return all, nil
}

// openSource makes a detached copy of what is bound. That of a file is not made recursively, though it is asked for: nothing is mounted
// below it, and the kernel would look at everything that is mounted on its file system, such as all other pods' files.
func openSource(m *configs.Mount) (tree int, dir bool, err error) {
	fd, err := unix.Open(m.Source, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, false, os.NewSyscallError("open", err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return -1, false, os.NewSyscallError("stat", err)
	}
	dir = st.Mode&unix.S_IFMT == unix.S_IFDIR
	tree, err = clone(fd, "", dir && m.Flags&unix.MS_REC != 0)
	return tree, dir, err
}

func closeSources(all []source) {
	for _, s := range all {
		if s.tree >= 0 {
			unix.Close(s.tree)
		}
	}
}

// procMounts are the files of /proc that may be covered: those which file systems for containers (lxcfs) show in another way.
var procMounts = []string{"/proc/cpuinfo", "/proc/diskstats", "/proc/meminfo", "/proc/stat", "/proc/swaps", "/proc/uptime", "/proc/loadavg",
	"/proc/slabinfo", "/proc/sys/kernel/ns_last_pid", "/proc/sys/crypto/fips_enabled"}

// checkProc keeps mounts off /proc: what a container's runtime reads and writes there must be the kernel's.
func checkProc(s source, onto int) error {
	clean := path.Clean("/" + s.Destination)
	if slices.Contains(procMounts, clean) {
		return nil
	}
	var st unix.Statfs_t
	if clean == "/proc" {
		if s.Device == "proc" {
			return nil
		}
		if s.tree >= 0 {
			if err := unix.Fstatfs(s.tree, &st); err != nil {
				return os.NewSyscallError("fstatfs", err)
			}
			if st.Type == unix.PROC_SUPER_MAGIC {
				return nil
			}
		}
		return errors.New("/proc can only be covered by a proc file system")
	}
	if err := unix.Fstatfs(onto, &st); err != nil {
		return os.NewSyscallError("fstatfs", err)
	}
	if strings.HasPrefix(clean, "/proc/") || st.Type == unix.PROC_SUPER_MAGIC {
		return errors.New("it is within /proc")
	}
	return nil
}

// mountPoint opens where a mount goes, and makes it if it is missing.
func mountPoint(root int, s source) (int, error) {
	if s.Device == "proc" || s.Device == "sysfs" {
		// These must be where programs look for them: no link on the way.
		fd, err := openHow(root, s.Destination, unix.O_PATH|unix.O_DIRECTORY, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_SYMLINKS)
		if errors.Is(err, unix.ENOENT) {
			return mkdirIn(root, s.Destination, 0o755)
		}
		return fd, err
	}
	if s.dir {
		fd, err := openIn(root, s.Destination, unix.O_PATH)
		if errors.Is(err, unix.ENOENT) {
			return mkdirIn(root, s.Destination, 0o755)
		}
		return fd, err
	}
	return createIn(root, s.Destination, 0o644)
}

// mount makes one mount of the container.
func (c *container) mount(s source) error {
	onto, err := mountPoint(c.root, s)
	if err != nil {
		return err
	}
	defer unix.Close(onto)
	var at, top unix.Stat_t
	if err := errors.Join(unix.Fstat(onto, &at), unix.Fstat(c.root, &top)); err != nil {
		return err
	}
	if at.Dev == top.Dev && at.Ino == top.Ino {
		return errors.New("it is the root of the container")
	}
	if err := checkProc(s, onto); err != nil {
		return err
	}
	if s.Device == "cgroup" {
		return c.mountCgroups(s, onto)
	}
	if s.Device == "proc" {
		// It would show this thread's processes, the host's: the stub mounts it.
		c.plan.flags |= flagProc
		c.plan.proc, c.plan.procAttrs = s.Data, uint32(attrsOf(s.Flags))
		return nil
	}
	tree := s.tree
	if s.Device == "bind" {
		if err := setAttr(tree, false, bindAttr(s.Mount)); err != nil {
			return err
		}
		if s.RecAttr != nil {
			if err := setAttr(tree, true, *s.RecAttr); err != nil {
				return err
			}
		}
	} else {
		data, flags := s.Data, s.Flags
		if s.Device == "tmpfs" {
			// The mode of the directory that it covers, unless another is asked for; and writable while it is filled.
			data = fmt.Sprintf("mode=%04o,%s", at.Mode&0o7777, data)
			flags &^= unix.MS_RDONLY
		}
		label := c.config.MountLabel
		if s.Device == "sysfs" || s.Device == "mqueue" { // the policy's own, and one that is the namespace's and may be mounted elsewhere
			label = ""
		}
		if tree, err = newFS(s.Device, s.Source, data, label, int(attrsOf(flags))); err != nil {
			return err
		}
		defer unix.Close(tree)
		if s.Device == "mqueue" {
			if err := labelDir(tree, c.config.MountLabel); err != nil {
				return err
			}
		}
	}
	propagation := s.PropagationFlags
	if len(propagation) == 0 && s.Device == "bind" {
		propagation = c.ownPropagation()
	}
	if err := setPropagation(tree, propagation); err != nil {
		return err
	}
	return attach(tree, onto)
}

// ownPropagation is that of a bind mount which names none: what the root's is. A shared root's binds stay what the host's mounts are.
func (c *container) ownPropagation() []int {
	switch p := c.config.RootPropagation; {
	case p&unix.MS_SHARED != 0:
		return nil
	case p&unix.MS_SLAVE != 0:
		return []int{unix.MS_SLAVE | unix.MS_REC}
	}
	return []int{unix.MS_PRIVATE | unix.MS_REC}
}

// setPropagation applies propagation flags.
func setPropagation(tree int, all []int) error {
	for _, f := range all {
		if err := setAttr(tree, f&unix.MS_REC != 0, unix.MountAttr{Propagation: uint64(f &^ unix.MS_REC)}); err != nil {
			return err
		}
	}
	return nil
}
