package cgroup

import (
	"fmt"
	"math"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Unlimited is the value of a limit that is not set.
const Unlimited = math.MaxUint64

// Detail says how much Stats reads: each file costs some microseconds.
type Detail int

// Basic is what CRI's stats tell. Full adds what its metrics tell: times by mode, throttling, devices, huge pages, limits.
const (
	Basic Detail = iota
	Full
)

// Stats is what a cgroup and those below it have used. A part is nil where the host's kernel does not count it. Each part has
// its own time, which is when it was read.
type Stats struct {
	CPU    *CPUStats
	Memory *MemoryStats
	Swap   *SwapStats
	// CPUPressure, MemoryPressure and IOPressure are cgroup v2's; on a hybrid host only of a cgroup whose processes are in the v2
	// hierarchy too.
	CPUPressure, MemoryPressure, IOPressure *Pressure
	IOPressureAt                            time.Time

	// Of Full only:
	IO        []DeviceIO
	Hugepages []HugepageStats
	PIDs      *PIDStats
	Limits    *CPULimits
}

// CPUStats are cumulative, in nanoseconds of one processor.
type CPUStats struct {
	At    time.Time
	Usage uint64
	// Of Full only. Without the controller cpu (v2) there are no Periods.
	User, System           uint64
	Periods, Throttled     uint64 // counts
	ThrottledTime          uint64
	HasTimes, HasBandwidth bool
}

// MemoryStats is in bytes; faults are counts.
type MemoryStats struct {
	At                            time.Time
	Usage, InactiveFile, RSS      uint64
	PageFaults, MajorPageFaults   uint64 // PageFaults are all, minor and major
	Limit                         uint64 // the cgroup's own; Unlimited: none
	Cache, MappedFile, SwappedOut uint64

	// Of Full only:
	Kernel, MaxUsage, FailCount, OOMKills uint64
	Reservation                           uint64 // the cgroup's soft limit; Unlimited: none
	HasKernel, HasMaxUsage                bool
}

// WorkingSet is the memory that cannot be taken back at once: what is used without the page cache that was not used lately.
func (m *MemoryStats) WorkingSet() uint64 { return m.Usage - min(m.Usage, m.InactiveFile) }

// SwapStats is in bytes. Limit is that of swap alone; Unlimited: none.
type SwapStats struct {
	At           time.Time
	Usage, Limit uint64
}

// Pressure is how tasks have waited for a resource (the kernel's PSI). Full is nil where the kernel does not tell it: for cpu
// before 5.13.
type Pressure struct{ Some, Full *Stall }

// Stall are shares of time in percent over 10, 60 and 300 seconds, and the sum of all in microseconds.
type Stall struct {
	Avg10, Avg60, Avg300 float64
	Total                uint64
}

// DeviceIO counts what was read from and written to a block device.
type DeviceIO struct {
	Major, Minor                         uint64
	ReadBytes, WriteBytes, Reads, Writes uint64
}

// HugepageStats is in bytes. MaxUsage is cgroup v1's.
type HugepageStats struct {
	Size            string // "2MB"
	Usage, MaxUsage uint64
	HasMaxUsage     bool
}

// PIDStats counts tasks: processes and threads. Limit is the cgroup's own; Unlimited: none.
type PIDStats struct{ Tasks, Limit uint64 }

// CPULimits are as cgroup v1 has them; v2's weight is turned back to the shares that stand for it. Quota and Period are in
// microseconds; a Quota of Unlimited is none.
type CPULimits struct{ Shares, Quota, Period uint64 }

// Stats reads what the cgroup has used. A cgroup that is not there, or goes while it is read, is NotFound. Reading waits for
// nobody: neither for processes nor for a removal that is under way.
func (h *Host) Stats(path string, detail Detail) (Stats, error) {
	if err := check(path); err != nil {
		return Stats{}, err
	}
	r := readers.Get().(*fileReader)
	defer readers.Put(r)
	r.reset()
	var s Stats
	if h.mode == V2 {
		h.statsV2(r, path, detail, &s)
	} else {
		h.statsV1(r, path, detail, &s)
	}
	r.leave()
	if r.err != nil {
		return Stats{}, fmt.Errorf("stats of cgroup %s: %w", path, r.err)
	}
	if r.missing && !h.complete(path, &s) {
		return Stats{}, fmt.Errorf("stats of cgroup %s: it is not there (any more): %w", path, errdefs.ErrNotFound)
	}
	return s, nil
}

// complete tells whether a cgroup of which a file was missing is there nevertheless, in all hierarchies that its stats come
// from. On v1 it is made and removed in one after the other.
func (h *Host) complete(path string, s *Stats) bool {
	if h.mode == V2 { // where every cgroup has a cpu.stat
		return s.CPU != nil && exists(h.hierarchies[0].dir(path))
	}
	for _, controller := range []string{"cpuacct", "cpu", "memory", "pids"} {
		if root := h.controllers[controller]; root != "" && !exists(filepath.Join(root, path)) {
			return false
		}
	}
	return (s.CPU != nil || !h.HasController("cpuacct")) && (s.Memory != nil || !h.HasController("memory"))
}

// CountProcesses counts the processes in the cgroup and in those below it; a missing cgroup has none. Unlike a count of tasks
// it leaves threads out.
func (h *Host) CountProcesses(path string) (uint64, error) {
	if err := check(path); err != nil {
		return 0, err
	}
	r := readers.Get().(*fileReader)
	defer readers.Put(r)
	r.reset()
	n := h.countProcesses(r, h.processTree().dir(path))
	return n, r.err
}

// PIDs lists the processes in the cgroup and in those below it, as Processes does, from one hierarchy.
func (h *Host) PIDs(path string) ([]int, error) {
	if err := check(path); err != nil {
		return nil, err
	}
	return processesIn(h.processTree().dir(path))
}

// processTree is a hierarchy in which every process of ours is.
func (h *Host) processTree() hierarchy {
	if root := h.controllers["pids"]; root != "" {
		return hierarchy{mountpoint: root}
	}
	return h.hierarchies[0]
}

func (h *Host) countProcesses(r *fileReader, dir string) uint64 {
	n := r.lines(dir, "cgroup.procs")
	// A directory of a cgroup has two links, and one more for each below it.
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil || st.Nlink <= 2 {
		return n
	}
	for _, child := range r.children(dir) {
		n += h.countProcesses(r, filepath.Join(dir, child))
	}
	return n
}
