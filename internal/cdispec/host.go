package cdispec

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Drift is one way in which the host is not as a spec says.
type Drift struct {
	// Path is the host path, or the network interface, that is at fault.
	Path string
	// Missing says that nothing is there: when it comes, the fault may be gone.
	Missing bool
	// Hook says that it is the program of a hook.
	Hook bool
	// Detail is what was expected and found.
	Detail string
}

// DriftError says that a spec describes what is not there, or is there in another way.
type DriftError struct {
	Spec   string // path of the file
	Device string // CDI name
	Faults []Drift
}

// Error names the file, the device, each path with its fault, and the remedy.
func (e *DriftError) Error() string {
	return fmt.Sprintf("%s, device %q, does not fit this host: %s", e.Spec, e.Device, e.Why())
}

// Why is what is wrong, and the remedy: the same for all devices of a file that lack the same.
func (e *DriftError) Why() string {
	var parts []string
	hooks := 0
	for _, f := range e.Faults {
		parts = append(parts, f.Path+" "+f.Detail)
		if f.Hook {
			hooks++
		}
	}
	const install, again = "install the hook's program", "regenerate the spec, or load the driver"
	switch hooks {
	case 0:
		parts = append(parts, again)
	case len(e.Faults):
		parts = append(parts, install)
	default:
		parts = append(parts, install, again)
	}
	return strings.Join(parts, "; ")
}

// Host is where specs are compared with what there is; tests give it other roots.
type Host struct {
	ProcDevices string // /proc/devices
	SysDev      string // /sys/dev
	SysClassNet string // /sys/class/net
}

// ThisHost is the host that we run on.
func ThisHost() Host {
	return Host{ProcDevices: "/proc/devices", SysDev: "/sys/dev", SysClassNet: "/sys/class/net"}
}

// Check compares a device with the host: the edits that it brings into a container are its own and its file's. inUse says that the
// container already has the device, so that its network interfaces are in the container's namespace, not here. The error is a
// *DriftError.
func (h Host) Check(d *Device, inUse bool) error {
	return h.CheckBut(d, func(*specs.LinuxNetDevice) bool { return inUse })
}

// CheckBut is Check for a container whose pod has those of the device's network interfaces for which has is true.
func (h Host) CheckBut(d *Device, has func(*specs.LinuxNetDevice) bool) error {
	if faults := h.check([]*specs.ContainerEdits{&d.File.Spec.ContainerEdits, d.Edits}, has); len(faults) > 0 {
		return &DriftError{Spec: d.File.Path, Device: d.Name, Faults: faults}
	}
	return nil
}

func (h Host) check(edits []*specs.ContainerEdits, has func(*specs.LinuxNetDevice) bool) []Drift {
	var faults []Drift
	add := func(f *Drift) {
		if f != nil && !slices.Contains(faults, *f) {
			faults = append(faults, *f)
		}
	}
	for _, e := range edits {
		for _, n := range e.DeviceNodes {
			add(h.CheckNode(n))
		}
		for _, m := range e.Mounts {
			if isBind(m) {
				add(checkExists(m.HostPath))
			}
		}
		for _, hook := range e.Hooks {
			add(checkHook(hook.Path))
		}
		for _, n := range e.NetDevices {
			if !has(n) {
				add(checkExistsAs(filepath.Join(h.SysClassNet, n.HostInterfaceName), "network interface "+n.HostInterfaceName))
			}
		}
	}
	return faults
}

// isBind: CDI gives mounts of other types no path but a name ("tmpfs") as their host path.
func isBind(m *specs.Mount) bool {
	return filepath.IsAbs(m.HostPath) && (m.Type == "" || m.Type == "none" || m.Type == "bind" ||
		slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind"))
}

func checkExists(path string) *Drift { return checkExistsAs(path, path) }

func checkExistsAs(path, name string) *Drift {
	_, err := os.Stat(path)
	if err == nil {
		return nil
	}
	return &Drift{Path: name, Missing: errors.Is(err, fs.ErrNotExist), Detail: describe(err)}
}

func describe(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "does not exist"
	}
	return fmt.Sprintf("cannot be looked at: %v", cause(err))
}

func checkHook(path string) *Drift {
	if !filepath.IsAbs(path) {
		return &Drift{Path: path, Detail: "is a hook's path and not absolute"}
	}
	if f := checkExists(path); f != nil {
		f.Hook = true
		return f
	}
	if unix.Access(path, unix.X_OK) != nil {
		return &Drift{Path: path, Hook: true, Detail: "is a hook and not executable"}
	}
	return nil
}

// CheckNode checks a device node. A spec may describe a node in full (type and major number); then CDI lets its host
// path be absent, and the driver that owns the number must be there instead. Symbolic links are followed: udev's stable names are links, and
// one that leads nowhere is a device that is away.
func (h Host) CheckNode(n *specs.DeviceNode) *Drift {
	path := HostPath(n)
	full := n.Type != "" && (n.Major != 0 || n.Type == "p")
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		if full && errors.Is(err, fs.ErrNotExist) {
			return h.checkDriver(path, n)
		}
		return &Drift{Path: path, Missing: errors.Is(err, fs.ErrNotExist), Detail: describe(err)}
	}
	kind := NodeType(st.Mode)
	if kind == "" {
		return &Drift{Path: path, Detail: "is a " + FileType(st.Mode) + ", not a device node"}
	}
	if n.Type != "" && kind != strings.Replace(n.Type, "u", "c", 1) {
		return &Drift{Path: path, Detail: fmt.Sprintf("has type %q, the spec says %q", kind, n.Type)}
	}
	major, minor := int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
	if kind != "p" && n.Major != 0 && (n.Major != major || n.Minor != minor) {
		return &Drift{Path: path, Detail: fmt.Sprintf("has device number %d:%d, the spec says %d:%d", major, minor, n.Major, n.Minor)}
	}
	return nil
}

// HostPath is where a device node is on the host: where the container has it, unless the spec says otherwise.
func HostPath(n *specs.DeviceNode) string {
	if n.HostPath != "" {
		return n.HostPath
	}
	return n.Path
}

// NodeType is the type that CDI and OCI give a device node of this st_mode: "b", "c", or "p" for a pipe. Empty: it is none.
func NodeType(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFBLK:
		return "b"
	case unix.S_IFCHR:
		return "c"
	case unix.S_IFIFO:
		return "p"
	}
	return ""
}

// FileType is what a file of this st_mode is called that is not the device node it should be.
func FileType(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return "directory"
	case unix.S_IFIFO:
		return "pipe"
	case unix.S_IFSOCK:
		return "socket"
	}
	return "regular file"
}

// checkDriver asks whether a device exists that has no node, by its number. Most drivers list each of their devices in sysfs; those that
// list none at all (NVIDIA's) are believed when they have registered the major number (proc(5), /proc/devices).
func (h Host) checkDriver(path string, n *specs.DeviceNode) *Drift {
	if n.Type == "p" {
		return nil
	}
	listed, err := h.listed(n)
	if err != nil {
		return &Drift{Path: path, Missing: true, Detail: "does not exist, and its driver cannot be looked up: " + err.Error()}
	}
	if slices.Contains(listed, n.Minor) {
		return nil
	}
	if len(listed) > 0 {
		return &Drift{Path: path, Missing: true, Detail: fmt.Sprintf("does not exist, and its driver has no device %d:%d (%s), which the spec says", n.Major, n.Minor, n.Type)}
	}
	registered, err := h.registered(n)
	switch {
	case err != nil:
		return &Drift{Path: path, Missing: true, Detail: "does not exist, and its driver cannot be looked up: " + err.Error()}
	case !registered:
		return &Drift{Path: path, Missing: true, Detail: fmt.Sprintf("does not exist, and no driver has registered the major number %d (%s) that the spec says", n.Major, n.Type)}
	}
	return nil
}

// listed are the minor numbers of the devices of a major number in sysfs.
func (h Host) listed(n *specs.DeviceNode) ([]int64, error) {
	dir := filepath.Join(h.SysDev, "char")
	if n.Type == "b" {
		dir = filepath.Join(h.SysDev, "block")
	}
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	numbers, err := f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var minors []int64
	for _, number := range numbers {
		major, minor, _ := strings.Cut(number, ":")
		if major != strconv.FormatInt(n.Major, 10) {
			continue
		}
		if m, err := strconv.ParseInt(minor, 10, 64); err == nil {
			minors = append(minors, m)
		}
	}
	return minors, nil
}

// registered says whether a driver has the major number.
func (h Host) registered(n *specs.DeviceNode) (bool, error) {
	f, err := os.Open(h.ProcDevices)
	if err != nil {
		return false, err
	}
	defer f.Close()
	block := false
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		line := strings.TrimSpace(sc.Text())
		if strings.HasSuffix(line, "devices:") {
			block = strings.HasPrefix(line, "Block")
			continue
		}
		number, _, _ := strings.Cut(line, " ")
		if block == (n.Type == "b") && number == strconv.FormatInt(n.Major, 10) {
			return true, nil
		}
	}
	return false, sc.Err()
}
