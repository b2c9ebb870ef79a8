//go:build cgo

package spawn

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// placeFor adds to a plan how a container's place is made.
func placeFor(p *plan, c *configs.Config, cgroups []hierarchy, canMknod bool) error {
	p.flags |= flagRoot
	p.readonly, p.masked = c.ReadonlyPaths, c.MaskPaths
	if c.Readonlyfs {
		p.flags |= flagReadonlyRoot
	}
	if c.Namespaces.Contains(configs.NEWCGROUP) {
		p.flags |= flagCgroupNS
	}
	if len(c.Networks) > 0 {
		p.flags |= flagLoopback
	}
	p.place = place{rootfs: c.Rootfs, rootPropagation: unix.MS_PRIVATE, namespaces: namespacesOf(c.Namespaces), hierarchies: cgroups}
	if c.RootPropagation&unix.MS_SLAVE != 0 {
		p.place.rootPropagation = unix.MS_SLAVE
	}
	if c.RootPropagation&unix.MS_SHARED != 0 {
		p.place.rootShared = uint32(c.RootPropagation & (unix.MS_SHARED | unix.MS_REC))
	}
	for _, m := range c.Mounts {
		p.place.mounts = append(p.place.mounts, mountFor(c, m))
	}
	if coversDev(c.Mounts) {
		return nil
	}
	p.flags |= flagDev
	if !canMknod {
		p.flags |= flagBindDevices
	}
	p.place.links = devLinks()
	for _, d := range c.Devices {
		if d.Path == "" || path.Clean(d.Path) == "/dev/ptmx" {
			continue // only a rule for the cgroup; or a link
		}
		device, err := deviceFor(d)
		if err != nil {
			return fmt.Errorf("device %s: %w", d.Path, err)
		}
		p.place.devices = append(p.place.devices, device)
	}
	return nil
}

// namespacesOf are the namespaces that a start process joins or makes for a container, in this order. The mount namespace is made of the
// empty one, a cgroup namespace when the process is in its cgroup, and a PID namespace that is new by the birth.
func namespacesOf(all configs.Namespaces) (out []namespace) {
	for _, n := range []struct {
		kind configs.NamespaceType
		flag uint32
	}{
		{configs.NEWNET, unix.CLONE_NEWNET}, {configs.NEWIPC, unix.CLONE_NEWIPC}, {configs.NEWUTS, unix.CLONE_NEWUTS}, {configs.NEWPID, unix.CLONE_NEWPID},
	} {
		path := all.PathOf(n.kind)
		if all.Contains(n.kind) && (path != "" || n.kind != configs.NEWPID) {
			out = append(out, namespace{kind: n.flag, path: path})
		}
	}
	return out
}

// newPIDs says that a container has a PID namespace of its own.
func newPIDs(all configs.Namespaces) bool {
	return all.Contains(configs.NEWPID) && all.PathOf(configs.NEWPID) == ""
}

func coversDev(mounts []*configs.Mount) bool {
	return slices.ContainsFunc(mounts, func(m *configs.Mount) bool { return m.Device == "bind" && path.Clean("/"+m.Destination) == "/dev" })
}

// devLinks are the links in every container's /dev.
func devLinks() [][2]string {
	links := [][2]string{{"pts/ptmx", "ptmx"}, {"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"}, {"/proc/self/fd/2", "stderr"}}
	if hasKcore {
		links = append(links, [2]string{"/proc/kcore", "core"})
	}
	return links
}

var hasKcore = func() bool { _, err := os.Stat("/proc/kcore"); return err == nil }()

func deviceFor(d *devices.Device) (devicePlan, error) {
	kinds := map[devices.Type]uint32{devices.BlockDevice: unix.S_IFBLK, devices.CharDevice: unix.S_IFCHR, devices.FifoDevice: unix.S_IFIFO}
	kind, ok := kinds[d.Type]
	if !ok {
		return devicePlan{}, fmt.Errorf("%c is no type of a device node", d.Type)
	}
	number, err := d.Mkdev()
	if err != nil {
		return devicePlan{}, err
	}
	folder, name := path.Split(relative(d.Path))
	if name == "" {
		return devicePlan{}, errors.New("it is the root of the container")
	}
	return devicePlan{folder: strings.TrimSuffix(folder, "/"), name: name, path: d.Path, mode: kind | uint32(d.FileMode.Perm()), uid: d.Uid, gid: d.Gid, number: number}, nil
}

// relative is a container's path as the start process takes it: clean, without a slash before it, empty for the root.
func relative(name string) string { return strings.TrimLeft(path.Clean("/"+name), "/") }

// procFiles are the files of /proc that may be covered: those which file systems for containers (lxcfs) show in another way.
var procFiles = []string{"/proc/cpuinfo", "/proc/diskstats", "/proc/meminfo", "/proc/stat", "/proc/swaps", "/proc/uptime", "/proc/loadavg",
	"/proc/slabinfo", "/proc/sys/kernel/ns_last_pid", "/proc/sys/crypto/fips_enabled"}

// mountFor says how a mount is made.
func mountFor(c *configs.Config, m *configs.Mount) mountPlan {
	out := mountPlan{source: m.Source, destination: relative(m.Destination), propagation: propagationOf(m.PropagationFlags)}
	switch clean := path.Clean("/" + m.Destination); {
	case slices.Contains(procFiles, clean):
		out.flags |= mountProcFile
	case clean == "/proc":
		out.flags |= mountAtProc
	case strings.HasPrefix(clean, "/proc/"):
		out.flags |= mountInProc
	}
	switch m.Device {
	case "bind":
		out.kind = mountBind
		if m.Flags&unix.MS_REC != 0 {
			out.flags |= mountRec
		}
		attr := bindAttr(m)
		out.set, out.clear = attr.Attr_set, attr.Attr_clr
		if m.RecAttr != nil {
			out.flags |= mountRecAttr
			out.recSet, out.recClear, out.recursivePropagates = m.RecAttr.Attr_set, m.RecAttr.Attr_clr, m.RecAttr.Propagation
		}
		if len(m.PropagationFlags) == 0 {
			out.propagation = ownPropagation(c.RootPropagation)
		}
		return out
	case "cgroup":
		out.kind, out.data, out.label = mountCgroup, m.Data, c.MountLabel
		out.set = attrsOf(m.Flags &^ (unix.MS_BIND | unix.MS_REC))
		return out
	case "proc":
		out.kind, out.data, out.set = mountProc, m.Data, attrsOf(m.Flags)
		out.flags |= mountNoLinks
		return out
	}
	out.kind, out.fstype, out.data, out.label, out.set = mountNew, m.Device, m.Data, c.MountLabel, attrsOf(m.Flags)
	switch m.Device {
	case "tmpfs":
		out.flags |= mountTmpfs
		if m.Flags&unix.MS_RDONLY != 0 { // it is filled first
			out.flags |= mountReadonlyLate
			out.set &^= unix.MOUNT_ATTR_RDONLY
		}
	case "sysfs":
		out.flags |= mountNoLinks
		out.label = "" // the policy's own
	case "mqueue":
		out.flags |= mountLabelRoot // the file system is the namespace's, and may be mounted elsewhere
	}
	return out
}

// ownPropagation is that of a bind mount which names none: what the root's is. A shared root's binds stay what the host's mounts are.
func ownPropagation(root int) []uint32 {
	switch {
	case root&unix.MS_SHARED != 0:
		return nil
	case root&unix.MS_SLAVE != 0:
		return []uint32{unix.MS_SLAVE | unix.MS_REC}
	}
	return []uint32{unix.MS_PRIVATE | unix.MS_REC}
}

func propagationOf(flags []int) (out []uint32) {
	for _, f := range flags {
		out = append(out, uint32(f))
	}
	return out
}
