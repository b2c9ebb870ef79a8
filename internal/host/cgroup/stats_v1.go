package cgroup

import (
	"time"
)

// dirOf is the cgroup's directory in a v1 controller's hierarchy; empty when the host has none.
func (h *Host) dirOf(controller, path string) string {
	if root := h.controllers[controller]; root != "" {
		return root + path
	}
	return ""
}

func (h *Host) statsV1(r *fileReader, path string, detail Detail, s *Stats) {
	at := time.Now()
	acct := h.dirOf("cpuacct", path)
	if acct != "" {
		if usage, ok := r.number(acct, "cpuacct.usage"); ok {
			s.CPU = &CPUStats{At: at, Usage: usage}
		}
	}
	h.memoryV1(r, h.dirOf("memory", path), detail, s)
	h.pressureHybrid(r, path, s)
	if detail != Full {
		return
	}
	if s.CPU != nil {
		h.cpuTimesV1(r, acct, h.dirOf("cpu", path), s.CPU)
	}
	s.Limits = h.cpuLimitsV1(r, h.dirOf("cpu", path))
	if dir := h.dirOf("blkio", path); dir != "" {
		s.IO = parseBlkio(r.read(dir, "blkio.throttle.io_service_bytes_recursive"), true, s.IO)
		s.IO = parseBlkio(r.read(dir, "blkio.throttle.io_serviced_recursive"), false, s.IO)
	}
	h.hugepageStats(r, path, s)
	if dir := h.dirOf("pids", path); dir != "" {
		s.PIDs = r.pids(dir)
	}
}

func (h *Host) cpuTimesV1(r *fileReader, acct, cpu string, c *CPUStats) {
	var ok1, ok2 bool
	c.User, ok1 = r.number(acct, "cpuacct.usage_user")
	c.System, ok2 = r.number(acct, "cpuacct.usage_sys")
	c.HasTimes = ok1 && ok2
	if cpu == "" {
		return
	}
	eachPair(r.read(cpu, "cpu.stat"), func(key []byte, n uint64) {
		switch string(key) {
		case "nr_periods":
			c.Periods, c.HasBandwidth = n, true
		case "nr_throttled":
			c.Throttled = n
		case "throttled_time":
			c.ThrottledTime = n
		}
	})
}

func (h *Host) cpuLimitsV1(r *fileReader, dir string) *CPULimits {
	if dir == "" {
		return nil
	}
	shares, ok := r.number(dir, "cpu.shares")
	if !ok {
		return nil
	}
	l := &CPULimits{Shares: shares, Quota: Unlimited}
	if n, ok := r.number(dir, "cpu.cfs_quota_us"); ok {
		l.Quota = n
	}
	l.Period, _ = r.number(dir, "cpu.cfs_period_us")
	return l
}

func (h *Host) memoryV1(r *fileReader, dir string, detail Detail, s *Stats) {
	if dir == "" {
		return
	}
	r.enter(dir)
	at := time.Now()
	usage, ok := r.number(dir, "memory.usage_in_bytes")
	if !ok {
		return
	}
	m := &MemoryStats{At: at, Usage: usage, Limit: Unlimited, Reservation: Unlimited}
	// Most have no limit, and none above them: then there is no need to look.
	limited, memsw := memoryStatV1(r.read(dir, "memory.stat"), m)
	if limited {
		if limit, ok := r.number(dir, "memory.limit_in_bytes"); ok {
			m.Limit = limit
		}
	}
	s.Memory = m
	if memsw != swapNotCounted {
		s.Swap = &SwapStats{At: at, Usage: m.SwappedOut, Limit: Unlimited}
		if memsw == swapLimited && m.Limit != Unlimited {
			if limit, ok := r.number(dir, "memory.memsw.limit_in_bytes"); ok && limit != Unlimited {
				s.Swap.Limit = limit - min(limit, m.Limit) // v1 limits the sum
			}
		}
	}
	if detail != Full {
		return
	}
	m.Kernel, m.HasKernel = r.number(dir, "memory.kmem.usage_in_bytes")
	m.MaxUsage, m.HasMaxUsage = r.number(dir, "memory.max_usage_in_bytes")
	m.FailCount, _ = r.number(dir, "memory.failcnt")
	if n, ok := r.number(dir, "memory.soft_limit_in_bytes"); ok {
		m.Reservation = n
	}
	eachPair(r.read(dir, "memory.oom_control"), func(key []byte, n uint64) {
		if string(key) == "oom_kill" {
			m.OOMKills = n
		}
	})
}

// swapCounting is what a v1 cgroup's memory.stat says of swap.
type swapCounting int

const (
	swapNotCounted swapCounting = iota // the kernel does not
	swapUnlimited
	swapLimited // here or above
)

// memoryStatV1 reads the sums over the cgroup and those below it, and whether there is a limit on it or on one above.
func memoryStatV1(raw []byte, m *MemoryStats) (limited bool, swap swapCounting) {
	eachPair(raw, func(key []byte, n uint64) {
		switch string(key) {
		case "hierarchical_memory_limit":
			limited = n < unlimitedFrom
		case "hierarchical_memsw_limit":
			swap = swapUnlimited
			if n < unlimitedFrom {
				swap = swapLimited
			}
		case "total_rss":
			m.RSS = n
		case "total_cache":
			m.Cache = n
		case "total_mapped_file":
			m.MappedFile = n
		case "total_swap":
			m.SwappedOut = n
		case "total_inactive_file":
			m.InactiveFile = n
		case "total_pgfault":
			m.PageFaults = n
		case "total_pgmajfault":
			m.MajorPageFaults = n
		}
	})
	return limited, swap
}

// pressureHybrid reads the pressure from the v2 hierarchy that stands beside v1's, if the cgroup's processes are in it.
func (h *Host) pressureHybrid(r *fileReader, path string, s *Stats) {
	if h.mode != Hybrid {
		return
	}
	for _, t := range h.hierarchies {
		if !t.unified {
			continue
		}
		dir, missing := t.mountpoint+path, r.missing
		r.enter(dir)
		populated := false
		eachPair(r.read(dir, "cgroup.events"), func(key []byte, n uint64) {
			populated = populated || string(key) == "populated" && n == 1
		})
		r.missing = missing
		if !populated {
			return
		}
		s.CPUPressure = r.pressure(dir, "cpu")
		s.MemoryPressure = r.pressure(dir, "memory")
		s.IOPressureAt = time.Now()
		s.IOPressure = r.pressure(dir, "io")
		return
	}
}
