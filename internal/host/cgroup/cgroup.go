// Package cgroup creates, limits and removes cgroups by their path, the same in every hierarchy of the host: cgroup v1,
// v2, or both beside each other (hybrid).
//
// A path is absolute within each hierarchy ("/monopod/pods/podX"), in cgroupfs syntax. Nothing but the given path, its
// missing parents and (v2) the parents' list of enabled controllers is ever touched.
//
// Processes are not moved here: a container's process is born in its cgroup by the executor.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/sys/mountinfo"
)

// Mode is the layout of the host's cgroups.
type Mode string

// The modes. In Hybrid mode the controllers that limit containers are v1 hierarchies, and a v2 hierarchy stands beside
// them; cgroups are made in it too, but limits in it are not used, as libcontainer does, save those of huge pages (SplitHugetlb).
const (
	V1     Mode = "v1"
	Hybrid Mode = "hybrid"
	V2     Mode = "v2"
)

// Host is the layout of the host's cgroups, as found by Detect. It does not change while the host runs; its methods are
// safe for concurrent use.
type Host struct {
	mode        Mode
	hierarchies []hierarchy
	controllers map[string]string // name -> mount point, of those that limits can be set with
	// splitHugetlb: the mode is Hybrid, and the controller hugetlb is v2's.
	splitHugetlb bool
}

// hierarchy is a mounted tree of cgroups.
type hierarchy struct {
	mountpoint  string
	controllers []string // v1: "cpu", "name=systemd"; v2: nil
	unified     bool
}

// dir returns the cgroup's directory.
func (h hierarchy) dir(path string) string { return filepath.Join(h.mountpoint, path) }

// Detect reads the layout from this process's mounts.
func Detect() (*Host, error) {
	infos, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return nil, fmt.Errorf("read the mounts: %w", err)
	}
	h := fromMounts(infos)
	if len(h.hierarchies) == 0 {
		return nil, fmt.Errorf("no cgroup file system is mounted; on /sys/fs/cgroup one is expected: %w", errdefs.ErrFailedPrecondition)
	}
	if h.mode == V2 {
		root := h.hierarchies[0].mountpoint
		names, err := readWords(filepath.Join(root, "cgroup.controllers"))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			h.controllers[name] = root
		}
	}
	return h, h.findHugetlb()
}

// fromMounts tells the layout. A hierarchy that is mounted several times counts once, by its first mount.
func fromMounts(infos []*mountinfo.Info) *Host {
	h := &Host{controllers: map[string]string{}}
	seen := map[string]bool{}
	v1, v2 := false, false
	for _, m := range infos {
		tree := hierarchy{mountpoint: m.Mountpoint, unified: m.FSType == "cgroup2"}
		if !tree.unified {
			tree.controllers = controllersOf(m.VFSOptions)
		}
		key := strings.Join(tree.controllers, ",")
		if seen[key] {
			continue
		}
		seen[key] = true
		h.hierarchies = append(h.hierarchies, tree)
		for _, name := range tree.controllers {
			if !strings.HasPrefix(name, "name=") {
				h.controllers[name] = tree.mountpoint
				v1 = true
			}
		}
		v2 = v2 || tree.unified
	}
	switch {
	case v1 && v2:
		h.mode = Hybrid
	case v2:
		h.mode = V2
	default:
		h.mode = V1
	}
	if h.mode == V2 { // what else is mounted has no controller ("name=systemd" alone)
		h.hierarchies = slices.DeleteFunc(h.hierarchies, func(t hierarchy) bool { return !t.unified })
	}
	return h
}

// controllersOf picks the controllers from a v1 mount's options.
func controllersOf(options string) (names []string) {
	for o := range strings.SplitSeq(options, ",") {
		switch {
		case o == "rw", o == "ro", o == "xattr", o == "noprefix", o == "clone_children", o == "cpuset_v2_mode", o == "favordynmods", o == "seclabel",
			strings.HasPrefix(o, "release_agent="):
		default:
			names = append(names, o)
		}
	}
	slices.Sort(names)
	return names
}

// Mode tells v1, hybrid or v2.
func (h *Host) Mode() Mode { return h.mode }

// Controllers lists the controllers that limits can be set with, sorted ("cpu", "cpuset", "memory", "pids", ...).
func (h *Host) Controllers() []string {
	names := make([]string, 0, len(h.controllers))
	for name := range h.controllers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// HasController tells whether limits of this controller can be set.
func (h *Host) HasController(name string) bool { return h.controllers[name] != "" }

// HasSwapLimit tells whether the kernel counts swap against a cgroup.
func (h *Host) HasSwapLimit() bool {
	if !h.HasController("memory") {
		return false
	}
	if h.mode != V2 {
		return exists(filepath.Join(h.controllers["memory"], "memory.memsw.limit_in_bytes"))
	}
	// The root cgroup has no limits. Any other with the controller tells; this process's own is most likely to have it.
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return false
	}
	_, path, _ := strings.Cut(strings.TrimSpace(string(own)), "::")
	for ; path != "/" && path != "." && path != ""; path = filepath.Dir(path) {
		if dir := h.hierarchies[0].dir(path); exists(filepath.Join(dir, "memory.max")) {
			return exists(filepath.Join(dir, "memory.swap.max"))
		}
	}
	// In the root without the controller enabled anywhere above us: /proc/swaps exists when the kernel has swap at all.
	return exists("/proc/swaps")
}

// HugepageSizes lists the page sizes that can be limited, in the kernel's form ("2MB", "1GB"); none without the controller
// hugetlb.
func (h *Host) HugepageSizes() []string {
	if !h.HasController("hugetlb") {
		return nil
	}
	entries, err := os.ReadDir("/sys/kernel/mm/hugepages")
	if err != nil {
		return nil
	}
	var sizes []string
	for _, e := range entries {
		var kb uint64
		if _, err := fmt.Sscanf(e.Name(), "hugepages-%dkB", &kb); err != nil {
			continue
		}
		switch {
		case kb%(1<<20) == 0:
			sizes = append(sizes, fmt.Sprintf("%dGB", kb>>20))
		case kb%(1<<10) == 0:
			sizes = append(sizes, fmt.Sprintf("%dMB", kb>>10))
		default:
			sizes = append(sizes, fmt.Sprintf("%dKB", kb))
		}
	}
	slices.Sort(sizes)
	return sizes
}

// Paths maps each controller (v1; "name=systemd" too) to the cgroup's directory; the v2 hierarchy has the key "".
func (h *Host) Paths(path string) map[string]string {
	all := map[string]string{}
	for _, t := range h.hierarchies {
		if t.unified {
			all[""] = t.dir(path)
		}
		for _, name := range t.controllers {
			all[name] = t.dir(path)
		}
	}
	return all
}

// Exists tells whether the cgroup is there in at least one hierarchy.
func (h *Host) Exists(path string) (bool, error) {
	if err := check(path); err != nil {
		return false, err
	}
	for _, t := range h.hierarchies {
		switch _, err := os.Lstat(t.dir(path)); {
		case err == nil:
			return true, nil
		case !errors.Is(err, fs.ErrNotExist):
			return false, err
		}
	}
	return false, nil
}

// Children are the names of the cgroups directly below one, in whatever hierarchy, sorted. Those of a missing one are none.
func (h *Host) Children(path string) ([]string, error) {
	if err := check(path); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, t := range h.hierarchies {
		entries, err := os.ReadDir(t.dir(path))
		if err = ignoreMissing(err); err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.IsDir() {
				seen[e.Name()] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen)), nil
}

// check refuses what is no cgroup of ours: a relative path, one that climbs, and the root.
func check(path string) error {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" {
		return fmt.Errorf("cgroup %q: not a clean absolute path below the root, as /pods/pod1 is: %w", path, errdefs.ErrInvalidArgument)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func readWords(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	return strings.Fields(string(data)), err
}

// write writes a control file, which is there or else the controller is not.
func write(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write %q: %w", value, err)
	}
	return nil
}
