package cgroup

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// hugetlb is the one controller whose limits in the v2 hierarchy of a hybrid host are used: kernels whose other controllers are
// v1's may have this one there, where libcontainer does not look.

// findHugetlb takes the v2 hierarchy's controller on a hybrid host whose v1 hierarchies have none.
func (h *Host) findHugetlb() error {
	if h.mode != Hybrid || h.HasController("hugetlb") {
		return nil
	}
	for _, t := range h.hierarchies {
		if !t.unified {
			continue
		}
		names, err := readWords(filepath.Join(t.mountpoint, "cgroup.controllers"))
		if err != nil {
			return err
		}
		if slices.Contains(names, "hugetlb") {
			h.controllers["hugetlb"], h.splitHugetlb = t.mountpoint, true
		}
	}
	return nil
}

// SplitHugetlb says that this is a hybrid host with the controller hugetlb in its v2 hierarchy.
func (h *Host) SplitHugetlb() bool { return h.splitHugetlb }

// EnableHugetlb makes the controller's files appear in a cgroup of a host with SplitHugetlb; elsewhere, and when they are there, it does
// nothing. It is not done for every cgroup, because it costs each of them, and few have huge pages. A parent that holds
// processes is FailedPrecondition.
func (h *Host) EnableHugetlb(path string) error {
	if err := check(path); err != nil || !h.splitHugetlb {
		return err
	}
	root := hierarchy{mountpoint: h.controllers["hugetlb"]}
	parents := []string{"/"}
	for i, c := range path {
		if c == '/' && i > 0 {
			parents = append(parents, path[:i])
		}
	}
	for _, parent := range parents {
		dir := root.dir(parent)
		enabled, err := readWords(filepath.Join(dir, "cgroup.subtree_control"))
		if err == nil && !slices.Contains(enabled, "hugetlb") {
			err = write(dir, "cgroup.subtree_control", "+hugetlb")
		}
		switch {
		case errors.Is(err, os.ErrNotExist):
			return fmt.Errorf("%s: no such cgroup: %w", dir, errdefs.ErrNotFound)
		case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EOPNOTSUPP):
			return fmt.Errorf("huge pages of cgroup %s: %s holds processes or is threaded, so that the controller hugetlb cannot be enabled in it: move them, or choose another parent: %w",
				path, dir, errdefs.ErrFailedPrecondition)
		case err != nil:
			return fmt.Errorf("huge pages of cgroup %s: enable the controller hugetlb in %s: %w", path, dir, err)
		}
	}
	return nil
}

// hugepages are the settings of limits by page size. The kernel counts pages when they are touched and, in newer kernels, also when they
// are reserved, so that a program fails at mmap instead of dying later.
func (h *Host) hugepages(limits map[string]uint64) (all []setting) {
	suffix := ".limit_in_bytes"
	if h.mode == V2 || h.splitHugetlb {
		suffix = ".max"
	}
	for _, size := range slices.Sorted(maps.Keys(limits)) {
		value := fmt.Sprint(limits[size])
		all = append(all, setting{controller: "hugetlb", file: "hugetlb." + size + suffix, value: value},
			setting{controller: "hugetlb", file: "hugetlb." + size + ".rsvd" + suffix, value: value, optional: true})
	}
	return all
}

// hugepageStats reads what is in use. In a v2 hierarchy beside v1's the cgroups for which the controller is not enabled have none.
func (h *Host) hugepageStats(r *fileReader, path string, s *Stats) {
	dir := h.dirOf("hugetlb", path)
	if dir == "" {
		return
	}
	usage, missing := ".usage_in_bytes", r.missing
	if h.splitHugetlb {
		usage = ".current"
	}
	for _, size := range h.HugepageSizes() {
		if n, ok := r.number(dir, "hugetlb."+size+usage); ok {
			p := HugepageStats{Size: size, Usage: n}
			if !h.splitHugetlb {
				p.MaxUsage, p.HasMaxUsage = r.number(dir, "hugetlb."+size+".max_usage_in_bytes")
			}
			s.Hugepages = append(s.Hugepages, p)
		}
	}
	if h.splitHugetlb {
		r.missing = missing
	}
}
