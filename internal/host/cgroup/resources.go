package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Resources limit a cgroup as a whole. A nil field is left as it is.
type Resources struct {
	CPUShares   *uint64 // relative, 2 to 262144, as cgroup v1 counts them; v2 gets the corresponding cpu.weight
	CPUQuota    *int64  // microseconds a period; -1: no limit
	CPUPeriod   *uint64 // microseconds; only together with CPUQuota
	MemoryLimit *int64  // bytes; -1: no limit
	PidsLimit   *int64  // processes and threads; -1: no limit
}

// Set writes the limits of an existing cgroup, one after the other: what was written before an error stays. A limit whose
// controller the host lacks is FailedPrecondition and names it; a cgroup that does not exist is NotFound.
func (h *Host) Set(path string, r Resources) error {
	if err := check(path); err != nil {
		return err
	}
	if r.CPUPeriod != nil && r.CPUQuota == nil {
		return fmt.Errorf("limit cgroup %s: a cpu period of %d without a quota: %w", path, *r.CPUPeriod, errdefs.ErrInvalidArgument)
	}
	for _, s := range h.settings(r) {
		if err := s.apply(h, path); err != nil {
			return fmt.Errorf("limit cgroup %s: %w", path, err)
		}
	}
	return nil
}

// setting is a control file to write. Where the kernel holds two of them against each other, first is the one to be
// written before this if this one is refused.
type setting struct {
	controller, file, value string
	first                   *setting
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
	if r.MemoryLimit != nil {
		if unified {
			add("memory", "memory.max", orMax(*r.MemoryLimit))
		} else {
			add("memory", "memory.limit_in_bytes", strconv.FormatInt(*r.MemoryLimit, 10))
		}
	}
	if r.PidsLimit != nil {
		add("pids", "pids.max", orMax(*r.PidsLimit))
	}
	return all
}

func (s setting) apply(h *Host, path string) error {
	root, ok := h.controllers[s.controller]
	if !ok {
		return fmt.Errorf("%s = %s: this host has no controller %q: %w", s.file, s.value, s.controller, errdefs.ErrFailedPrecondition)
	}
	dir := hierarchy{mountpoint: root}.dir(path)
	err := write(dir, s.file, s.value)
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
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: the controller %q is not enabled in its parent: %w", dir, s.controller, errdefs.ErrFailedPrecondition)
	default:
		return fmt.Errorf("%s: %w", s.file, err)
	}
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
