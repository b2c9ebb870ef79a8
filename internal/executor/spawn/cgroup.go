//go:build cgo

package spawn

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// hierarchy is one mounted hierarchy of cgroups, version 1.
type hierarchy struct {
	name string   // the last part of its mount point
	also []string // further names, links to it
	dir  string   // the container's cgroup in it
}

// hostHierarchies are the hierarchies that the host has mounted, and this process's cgroups in them. To find them costs the more the
// more is mounted, so it is done once.
type hostHierarchies struct {
	mounts []cgroups.Mount
	own    map[string]string
}

func findHierarchies() (h hostHierarchies, err error) {
	if cgroups.IsCgroup2UnifiedMode() {
		return h, nil
	}
	if h.mounts, err = cgroups.GetCgroupMounts(false); err != nil {
		return h, fmt.Errorf("cgroup mounts: %w", err)
	}
	h.own, err = cgroups.ParseCgroupFile("/proc/self/cgroup")
	return h, err
}

// of finds the directories that a container with these cgroups sees: of a hierarchy in which it has none of its own, that of
// this process. On version 2 it is one, with an empty name.
func (host hostHierarchies) of(paths map[string]string) (all []hierarchy, err error) {
	if cgroups.IsCgroup2UnifiedMode() {
		return []hierarchy{{dir: paths[""]}}, nil
	}
	for _, m := range host.mounts {
		h := hierarchy{name: filepath.Base(m.Mountpoint)}
		for _, s := range m.Subsystems {
			for _, key := range []string{s, cgroups.CgroupNamePrefix + s} {
				if dir := paths[key]; dir != "" {
					h.dir = dir
				}
			}
		}
		if h.dir == "" {
			dir, err := m.GetOwnCgroup(host.own)
			if err != nil {
				return nil, fmt.Errorf("own cgroup in %s: %w", m.Mountpoint, err)
			}
			rel, err := filepath.Rel(m.Root, dir)
			if err != nil {
				return nil, err
			}
			h.dir = filepath.Join(m.Mountpoint, rel)
		}
		if strings.Contains(h.name, ",") {
			h.also = strings.Split(h.name, ",")
		}
		all = append(all, h)
	}
	return all, nil
}

// membership is how a process comes into its cgroups: born there (version 2), or by writing to the files of version 1. A hybrid host has
// both.
type membership struct {
	into  int   // a descriptor of the cgroup, or -1
	tasks []int // opened files "tasks"
}

// openMembership opens the cgroups by their directories: by controller on version 1, under "" on version 2.
func openMembership(paths map[string]string) (m membership, err error) {
	m.into = -1
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	if dir := paths[""]; dir != "" {
		if m.into, err = unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
			return m, &os.PathError{Op: "open", Path: dir, Err: err}
		}
	}
	// The freezer comes last: what is frozen does not go on to join the others.
	var dirs []string
	for controller, dir := range paths {
		if controller != "" && dir != "" {
			dirs = append(dirs, dir)
		}
	}
	freezer := paths["freezer"]
	slices.SortFunc(dirs, func(a, b string) int {
		switch {
		case a == b:
			return 0
		case a == freezer:
			return 1
		case b == freezer:
			return -1
		}
		return strings.Compare(a, b)
	})
	for _, dir := range slices.Compact(dirs) {
		file := filepath.Join(dir, "tasks")
		fd, err := unix.Open(file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return m, &os.PathError{Op: "open", Path: file, Err: err}
		}
		m.tasks = append(m.tasks, fd)
	}
	return m, nil
}

func (m *membership) close() {
	for _, fd := range m.tasks {
		unix.Close(fd)
	}
	if m.into >= 0 {
		unix.Close(m.into)
	}
	m.tasks, m.into = nil, -1
}
