package probe

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Controllers without which limits of pods do not hold, by cgroup version. The device and freezer controllers are part of
// the core on v2. With a wanted one missing, a single feature goes; the others are told and no more.
var (
	neededV1 = []string{"cpu", "devices", "freezer", "memory", "pids"}
	neededV2 = []string{"cpu", "memory", "pids"}
	wanted   = []string{"cpuset"}
	others   = []string{"blkio", "cpuacct", "hugetlb"}
)

// cgroups finds the version in use and its controllers, and makes a cgroup, in every hierarchy, where the node's root
// will be.
func (sys system) cgroups(root string) Result {
	const name = "cgroups"
	var st unix.Statfs_t
	if err := unix.Statfs(sys.cgroup, &st); err != nil {
		return bad(name, "%s: %v", sys.cgroup, err).fail("mount cgroup2 at %s", sys.cgroup)
	}
	var mode string
	var needed, controllers, hierarchies []string
	if st.Type == unix.CGROUP2_SUPER_MAGIC {
		mode, needed, hierarchies = "v2", neededV2, []string{sys.cgroup}
		raw, err := os.ReadFile(filepath.Join(sys.cgroup, "cgroup.controllers"))
		if err != nil {
			return bad(name, "v2: %v", err).fail("mount cgroup2 at %s", sys.cgroup)
		}
		controllers = strings.Fields(string(raw))
	} else {
		mode, needed = "v1", neededV1
		if _, err := os.Stat(filepath.Join(sys.cgroup, "unified/cgroup.procs")); err == nil {
			mode = "hybrid (v1 controllers)"
		}
		var err error
		if controllers, hierarchies, err = sys.mountedV1(); err != nil {
			return bad(name, "%v", err).fail("mount proc at %s", sys.proc)
		}
	}
	slices.Sort(controllers)
	lacking := func(want []string) (missing []string) {
		for _, c := range want {
			if !slices.Contains(controllers, c) {
				missing = append(missing, c)
			}
		}
		return missing
	}
	text := fmt.Sprintf("%s: %s", mode, strings.Join(controllers, " "))
	if missing := lacking(needed); len(missing) > 0 {
		return bad(name, "%s; without %s", text, strings.Join(missing, ", ")).fail(
			"mount these controllers below %s, or boot with cgroup_enable=%s; on v2, a parent cgroup must delegate them", sys.cgroup, strings.Join(missing, ","))
	}
	for _, h := range hierarchies {
		if err := tryCgroup(filepath.Join(h, filepath.Dir(filepath.Join("/", root)))); err != nil {
			return bad(name, "%s; no cgroup can be made: %v", text, err).fail("mount %s writable, or choose another --cgroup-root; if this is a container, start it privileged", h)
		}
	}
	if missing := lacking(wanted); len(missing) > 0 {
		return bad(name, "%s", text).warn("without %s, containers cannot be bound to processors: boot with that controller enabled", strings.Join(missing, ", "))
	}
	return ok(name, "%s", text)
}

// mountedV1 lists the v1 controllers that are mounted below the cgroup directory, and their mount points.
func (sys system) mountedV1() (controllers, points []string, err error) {
	f, err := os.Open(filepath.Join(sys.proc, "self/mountinfo"))
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		before, after, _ := strings.Cut(sc.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if len(left) < 5 || len(right) < 3 || right[0] != "cgroup" || !strings.HasPrefix(left[4], sys.cgroup+"/") {
			continue
		}
		for _, option := range strings.Split(right[2], ",") {
			if slices.Contains(slices.Concat(neededV1, wanted, others), option) {
				controllers = append(controllers, option)
				points = append(points, left[4])
			}
		}
	}
	return controllers, slices.Compact(points), sc.Err()
}

// tryCgroup makes a cgroup in dir, or in the nearest cgroup above that exists, and removes it.
func tryCgroup(dir string) error {
	path := filepath.Join(existing(dir), fmt.Sprintf("monopod-check-%d", os.Getpid()))
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Remove(path)
}
