package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Resources limit a cgroup as a whole. A nil field is left as it is.
type Resources struct {
	CPUShares   *uint64 // relative, 2 to 262144, as cgroup v1 counts them; v2 gets the corresponding cpu.weight
	CPUQuota    *int64  // microseconds a period; -1: no limit
	CPUPeriod   *uint64 // microseconds; only together with CPUQuota
	MemoryLimit *int64  // bytes; -1: no limit
	MemorySwap  *int64  // bytes of memory and swap together; -1: no limit; a number only together with MemoryLimit
	PidsLimit   *int64  // processes and threads; -1: no limit
	CPUs, Mems  string  // lists as "0-3,8"; empty: left as they are
	// Hugepages are bytes by page size, in the form of HugepageSizes.
	Hugepages map[string]uint64
	// Unified are control files of v2 by their names, with what is to be written; not on v1.
	Unified map[string]string
}

// Set writes the limits of an existing cgroup, all or none: on an error, what was written before it is written back. A limit whose
// controller the host lacks is FailedPrecondition and names it; a cgroup that does not exist is NotFound; a value that the
// kernel does not take is InvalidArgument.
func (h *Host) Set(path string, r Resources) error { return h.SetWith(path, r, nil) }

// SetWith is Set, and then does what also does; after its error everything is as it was, too.
func (h *Host) SetWith(path string, r Resources, also func() error) error {
	if err := check(path); err != nil {
		return err
	}
	if r.CPUPeriod != nil && r.CPUQuota == nil {
		return fmt.Errorf("limit cgroup %s: a cpu period of %d without a quota: %w", path, *r.CPUPeriod, errdefs.ErrInvalidArgument)
	}
	if r.MemorySwap != nil && *r.MemorySwap > 0 && (r.MemoryLimit == nil || *r.MemoryLimit < 0 || *r.MemorySwap < *r.MemoryLimit) {
		return fmt.Errorf("limit cgroup %s: %d bytes of memory and swap together need a memory limit that is not above: %w", path, *r.MemorySwap, errdefs.ErrInvalidArgument)
	}
	if len(r.Unified) > 0 && h.mode != V2 {
		return fmt.Errorf("limit cgroup %s: the files %q are those of cgroup v2, and this host has v1: %w", path, slices.Sorted(maps.Keys(r.Unified)), errdefs.ErrFailedPrecondition)
	}
	if len(r.Hugepages) > 0 {
		if sizes := h.HugepageSizes(); len(sizes) > 0 {
			for size := range r.Hugepages {
				if !slices.Contains(sizes, size) {
					return fmt.Errorf("limit cgroup %s: huge pages of %q: this host has %q: %w", path, size, sizes, errdefs.ErrInvalidArgument)
				}
			}
		}
		if err := h.EnableHugetlb(path); err != nil {
			return fmt.Errorf("limit cgroup %s: %w", path, err)
		}
	}
	var done []setting // with the values that were there, the last one written first
	undo := func(err error) error {
		err = fmt.Errorf("limit cgroup %s: %w", path, err)
		for _, s := range done {
			err = errors.Join(err, s.apply(h, path))
		}
		return err
	}
	for _, s := range h.settings(r) {
		was, err := s.current(h, path)
		if err == nil {
			done = slices.Insert(done, 0, was)
			err = s.apply(h, path)
		}
		if err != nil {
			return undo(err)
		}
	}
	if also == nil {
		return nil
	}
	if err := also(); err != nil {
		return undo(err)
	}
	return nil
}

// setting is a control file to write. Where the kernel holds two of them against each other, first is the one to be
// written before this if this one is refused.
type setting struct {
	controller, file, value string
	first                   *setting
	optional                bool // older kernels lack the file
}

func (h *Host) settings(r Resources) []setting {
	var all []setting
	add := func(controller, file, value string) {
		all = append(all, setting{controller: controller, file: file, value: value})
	}
	unified := h.mode == V2
	if r.CPUShares != nil {
		if unified {
			add("cpu", "cpu.weight", strconv.FormatUint(weight(*r.CPUShares), 10))
		} else {
			add("cpu", "cpu.shares", strconv.FormatUint(*r.CPUShares, 10))
		}
	}
	switch {
	case r.CPUQuota == nil:
	case unified:
		add("cpu", "cpu.max", cpuMax(*r.CPUQuota, r.CPUPeriod))
	case r.CPUPeriod != nil:
		quota := setting{controller: "cpu", file: "cpu.cfs_quota_us", value: strconv.FormatInt(*r.CPUQuota, 10)}
		period := setting{controller: "cpu", file: "cpu.cfs_period_us", value: strconv.FormatUint(*r.CPUPeriod, 10), first: &quota}
		all = append(all, period, quota)
	default:
		add("cpu", "cpu.cfs_quota_us", strconv.FormatInt(*r.CPUQuota, 10))
	}
	all = append(all, h.memory(r)...)
	if r.PidsLimit != nil {
		add("pids", "pids.max", orMax(*r.PidsLimit))
	}
	if r.CPUs != "" {
		add("cpuset", "cpuset.cpus", r.CPUs)
	}
	if r.Mems != "" {
		add("cpuset", "cpuset.mems", r.Mems)
	}
	all = append(all, h.hugepages(r.Hugepages)...)
	for _, file := range slices.Sorted(maps.Keys(r.Unified)) {
		controller, _, _ := strings.Cut(file, ".")
		add(controller, file, r.Unified[file])
	}
	return all
}

func (h *Host) memory(r Resources) (all []setting) {
	limit := func() setting {
		if h.mode == V2 {
			return setting{controller: "memory", file: "memory.max", value: orMax(*r.MemoryLimit)}
		}
		return setting{controller: "memory", file: "memory.limit_in_bytes", value: strconv.FormatInt(*r.MemoryLimit, 10)}
	}
	switch {
	case r.MemorySwap == nil:
		if r.MemoryLimit != nil {
			all = append(all, limit())
		}
	case h.mode == V2: // which counts swap alone
		if r.MemoryLimit != nil {
			all = append(all, limit())
		}
		swap := *r.MemorySwap
		if swap > 0 {
			swap -= *r.MemoryLimit
		}
		all = append(all, setting{controller: "memory", file: "memory.swap.max", value: orMax(swap)})
	default:
		swap := setting{controller: "memory", file: "memory.memsw.limit_in_bytes", value: strconv.FormatInt(*r.MemorySwap, 10)}
		if r.MemoryLimit != nil {
			l := limit()
			l.first = &swap
			all = append(all, l)
		}
		all = append(all, swap)
	}
	return all
}

// current is the setting that writes what is there now.
func (s setting) current(h *Host, path string) (setting, error) {
	root, ok := h.controllers[s.controller]
	if !ok {
		return s, nil // apply tells
	}
	raw, err := os.ReadFile(filepath.Join(hierarchy{mountpoint: root}.dir(path), s.file))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	was := setting{controller: s.controller, file: s.file, optional: s.optional, value: strings.TrimSuffix(string(raw), "\n")}
	if s.first != nil { // they may have to be taken back in the other order, too
		first, err := s.first.current(h, path)
		if err != nil {
			return s, err
		}
		was.first = &first
	}
	return was, nil
}

func (s setting) apply(h *Host, path string) error {
	root, ok := h.controllers[s.controller]
	if !ok {
		return fmt.Errorf("%s = %s: this host has no controller %q: %w", s.file, s.value, s.controller, errdefs.ErrFailedPrecondition)
	}
	dir := hierarchy{mountpoint: root}.dir(path)
	err := writeLines(dir, s.file, s.value)
	if s.first != nil && errors.Is(err, unix.EINVAL) {
		// The new period with the old quota would give more than the parent has.
		if err = write(dir, s.first.file, s.first.value); err == nil {
			err = write(dir, s.file, s.value)
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist) && !exists(dir):
		return fmt.Errorf("%s: no such cgroup: %w", dir, errdefs.ErrNotFound)
	case errors.Is(err, fs.ErrNotExist) && s.optional:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: the controller %q is not enabled in its parent: %w", dir, s.controller, errdefs.ErrFailedPrecondition)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ERANGE), errors.Is(err, unix.EBUSY), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%s: %w: %w", s.file, err, errdefs.ErrInvalidArgument)
	default:
		return fmt.Errorf("%s: %w", s.file, err)
	}
}

// writeLines writes a control file; one that takes an entry a device (io.max) takes a line a write.
func writeLines(dir, file, value string) error {
	if value == "" { // a list that was empty (cpuset of v2); the kernel does not hear of a write of nothing
		return write(dir, file, "\n")
	}
	for line := range strings.SplitSeq(value, "\n") {
		if err := write(dir, file, line); err != nil {
			return err
		}
	}
	return nil
}

// cpuMax is v2's file for both. Without a period it keeps the present one.
func cpuMax(quota int64, period *uint64) string {
	value := orMax(quota)
	if period != nil {
		value += " " + strconv.FormatUint(*period, 10)
	}
	return value
}

func orMax(limit int64) string {
	if limit < 0 {
		return "max"
	}
	return strconv.FormatInt(limit, 10)
}

// weight turns v1's cpu.shares into v2's cpu.weight, as libcontainer does for containers: the ends and the defaults
// correspond (2 to 1, 1024 to 100, 262144 to 10000), and between them log10(weight) is a quadratic function of
// log2(shares).
func weight(shares uint64) uint64 {
	if shares <= 2 {
		return 1
	}
	if shares >= 262144 {
		return 10000
	}
	x := math.Log2(float64(shares))
	// Lagrange's polynomial through (1, 0), (10, 2) and (18, 4).
	y := 2*(x-1)*(x-18)/((10-1)*(10-18)) + 4*(x-1)*(x-10)/((18-1)*(18-10))
	return uint64(math.Ceil(math.Pow(10, y)))
}
