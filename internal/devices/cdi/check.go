package cdi

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

// Fault is one way in which the host is not as a spec says.
type Fault struct {
	// Path is the host path, or the network interface, that is at fault.
	Path string
	// Missing says that nothing is there: when it comes, the fault may be gone.
	Missing bool
	// Detail is what was expected and found.
	Detail string
}

// DriftError is the error of Check: the spec describes hardware that is not there, or is there in another way.
type DriftError struct {
	Spec   string // path of the file
	Device string // CDI name
	Faults []Fault
}

// Error names the file, the device, and each path with its fault.
func (e *DriftError) Error() string {
	var parts []string
	for _, f := range e.Faults {
		parts = append(parts, f.Path+" "+f.Detail)
	}
	return fmt.Sprintf("%s, device %q, does not fit this host: %s; regenerate the spec, or load the driver", e.Spec, e.Device, strings.Join(parts, "; "))
}

// host is where the checker looks; tests give it other roots.
type host struct {
	procDevices string // /proc/devices
	sysDev      string // /sys/dev
	sysClassNet string // /sys/class/net
}

// check compares the edits that a device brings into a container, its own and its file's, with the host. inUse says that
// the container already has the device, so that its network interfaces are in the container's namespace, not here.
func (h host) check(edits []*specs.ContainerEdits, inUse bool) []Fault {
	var faults []Fault
	add := func(f *Fault) {
		if f != nil && !slices.Contains(faults, *f) {
			faults = append(faults, *f)
		}
	}
	for _, e := range edits {
		for _, n := range e.DeviceNodes {
			add(h.checkNode(n))
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
			if !inUse {
				add(checkExistsAs(filepath.Join(h.sysClassNet, n.HostInterfaceName), "network interface "+n.HostInterfaceName))
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

func checkExists(path string) *Fault { return checkExistsAs(path, path) }

func checkExistsAs(path, name string) *Fault {
	_, err := os.Stat(path)
	if err == nil {
		return nil
	}
	return &Fault{Path: name, Missing: errors.Is(err, fs.ErrNotExist), Detail: describe(err)}
}

func describe(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "does not exist"
	}
	return fmt.Sprintf("cannot be looked at: %v", cause(err))
}

func checkHook(path string) *Fault {
	if !filepath.IsAbs(path) {
		return &Fault{Path: path, Detail: "is a hook's path and not absolute"}
	}
	if f := checkExists(path); f != nil {
		return f
	}
	if unix.Access(path, unix.X_OK) != nil {
		return &Fault{Path: path, Detail: "is a hook and not executable"}
	}
	return nil
}

// checkNode checks a device node. A spec may describe a node in full (type and major number); then CDI lets its host
// path be absent, and the driver that owns the number must be there instead.
func (h host) checkNode(n *specs.DeviceNode) *Fault {
	path := hostPath(n)
	full := n.Type != "" && (n.Major != 0 || n.Type == "p")
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		if full && errors.Is(err, fs.ErrNotExist) {
			return h.checkDriver(path, n)
		}
		return &Fault{Path: path, Missing: errors.Is(err, fs.ErrNotExist), Detail: describe(err)}
	}
	kind := nodeType(st.Mode)
	if kind == "" {
		return &Fault{Path: path, Detail: "is a " + fileType(st.Mode) + ", not a device node"}
	}
	if n.Type != "" && kind != strings.Replace(n.Type, "u", "c", 1) {
		return &Fault{Path: path, Detail: fmt.Sprintf("has type %q, the spec says %q", kind, n.Type)}
	}
	major, minor := int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
	if kind != "p" && n.Major != 0 && (n.Major != major || n.Minor != minor) {
		return &Fault{Path: path, Detail: fmt.Sprintf("has device number %d:%d, the spec says %d:%d", major, minor, n.Major, n.Minor)}
	}
	return nil
}

// hostPath is where a device node is on the host: where the container has it, unless the spec says otherwise.
func hostPath(n *specs.DeviceNode) string {
	if n.HostPath != "" {
		return n.HostPath
	}
	return n.Path
}

func nodeType(mode uint32) string {
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

func fileType(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return "directory"
	case unix.S_IFLNK:
		return "symbolic link"
	case unix.S_IFSOCK:
		return "socket"
	}
	return "regular file"
}

// checkDriver asks whether a device exists that has no node, by its number. Most drivers list each of their devices in sysfs; those that
// list none at all (NVIDIA's) are believed when they have registered the major number (proc(5), /proc/devices).
func (h host) checkDriver(path string, n *specs.DeviceNode) *Fault {
	if n.Type == "p" {
		return nil
	}
	listed, err := h.listed(n)
	if err != nil {
		return &Fault{Path: path, Missing: true, Detail: "does not exist, and its driver cannot be looked up: " + err.Error()}
	}
	if slices.Contains(listed, n.Minor) {
		return nil
	}
	if len(listed) > 0 {
		return &Fault{Path: path, Missing: true, Detail: fmt.Sprintf("does not exist, and its driver has no device %d:%d (%s), which the spec says", n.Major, n.Minor, n.Type)}
	}
	registered, err := h.registered(n)
	switch {
	case err != nil:
		return &Fault{Path: path, Missing: true, Detail: "does not exist, and its driver cannot be looked up: " + err.Error()}
	case !registered:
		return &Fault{Path: path, Missing: true, Detail: fmt.Sprintf("does not exist, and no driver has registered the major number %d (%s) that the spec says", n.Major, n.Type)}
	}
	return nil
}

// listed are the minor numbers of the devices of a major number in sysfs.
func (h host) listed(n *specs.DeviceNode) ([]int64, error) {
	dir := filepath.Join(h.sysDev, "char")
	if n.Type == "b" {
		dir = filepath.Join(h.sysDev, "block")
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
func (h host) registered(n *specs.DeviceNode) (bool, error) {
	f, err := os.Open(h.procDevices)
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
