package cgroup

import (
	"sort"
	"time"
)

func (h *Host) statsV2(r *fileReader, path string, detail Detail, s *Stats) {
	dir := h.hierarchies[0].dir(path)
	r.enter(dir)
	at := time.Now()
	if raw := r.read(dir, "cpu.stat"); raw != nil {
		s.CPU = &CPUStats{At: at}
		cpuStatV2(raw, s.CPU)
	}
	s.CPUPressure = r.pressure(dir, "cpu")
	memoryV2(r, dir, detail, s)
	s.MemoryPressure = r.pressure(dir, "memory")
	s.IOPressureAt = time.Now()
	s.IOPressure = r.pressure(dir, "io")
	if detail != Full {
		return
	}
	s.IO = parseIOStat(r.read(dir, "io.stat"))
	for _, size := range h.HugepageSizes() {
		if n, ok := r.number(dir, "hugetlb."+size+".current"); ok {
			s.Hugepages = append(s.Hugepages, HugepageStats{Size: size, Usage: n})
		}
	}
	s.PIDs = r.pids(dir)
	if w, ok := r.number(dir, "cpu.weight"); ok {
		s.Limits = &CPULimits{Shares: sharesOf(w), Quota: Unlimited}
		if quota, period, ok := parseCPUMax(r.read(dir, "cpu.max")); ok {
			s.Limits.Quota, s.Limits.Period = quota, period
		}
	}
}

func cpuStatV2(raw []byte, c *CPUStats) {
	c.HasTimes = true
	eachPair(raw, func(key []byte, n uint64) {
		switch string(key) {
		case "usage_usec":
			c.Usage = n * 1000
		case "user_usec":
			c.User = n * 1000
		case "system_usec":
			c.System = n * 1000
		case "nr_periods":
			c.Periods, c.HasBandwidth = n, true
		case "nr_throttled":
			c.Throttled = n
		case "throttled_usec":
			c.ThrottledTime = n * 1000
		}
	})
}

func memoryV2(r *fileReader, dir string, detail Detail, s *Stats) {
	at := time.Now()
	usage, ok := r.number(dir, "memory.current")
	if !ok {
		return
	}
	m := &MemoryStats{At: at, Usage: usage, Limit: Unlimited, Reservation: Unlimited}
	memoryStatV2(r.read(dir, "memory.stat"), m)
	if limit, ok := r.number(dir, "memory.max"); ok {
		m.Limit = limit
	}
	s.Memory = m
	at = time.Now()
	if usage, ok := r.number(dir, "memory.swap.current"); ok {
		s.Swap = &SwapStats{At: at, Usage: usage, Limit: Unlimited}
		if limit, ok := r.number(dir, "memory.swap.max"); ok {
			s.Swap.Limit = limit
		}
	}
	if detail != Full {
		return
	}
	m.MaxUsage, m.HasMaxUsage = r.number(dir, "memory.peak")
	eachPair(r.read(dir, "memory.events"), func(key []byte, n uint64) {
		switch string(key) {
		case "max":
			m.FailCount = n
		case "oom_kill":
			m.OOMKills = n
		}
	})
	if high, ok := r.number(dir, "memory.high"); ok {
		m.Reservation = high
	}
}

func memoryStatV2(raw []byte, m *MemoryStats) {
	eachPair(raw, func(key []byte, n uint64) {
		switch string(key) {
		case "anon":
			m.RSS = n
		case "file":
			m.Cache = n
		case "kernel":
			m.Kernel, m.HasKernel = n, true
		case "file_mapped":
			m.MappedFile = n
		case "inactive_file":
			m.InactiveFile = n
		case "pgfault":
			m.PageFaults = n
		case "pgmajfault":
			m.MajorPageFaults = n
		}
	})
}

// pressure reads a PSI file of a v2 cgroup.
func (r *fileReader) pressure(dir, resource string) *Pressure {
	missing := r.missing // a kernel without PSI has no such file
	p := parsePressure(r.read(dir, resource+".pressure"))
	r.missing = missing
	return p
}

func (r *fileReader) pids(dir string) *PIDStats {
	n, ok := r.number(dir, "pids.current")
	if !ok {
		return nil
	}
	p := &PIDStats{Tasks: n, Limit: Unlimited}
	if limit, ok := r.number(dir, "pids.max"); ok {
		p.Limit = limit
	}
	return p
}

// sharesOf finds the smallest shares that weight turns into w, and for the greatest weight the most shares.
func sharesOf(w uint64) uint64 {
	const least, most = 2, 262144
	if w >= 10000 {
		return most
	}
	return least + uint64(sort.Search(most-least, func(i int) bool { return weight(least+uint64(i)) >= w }))
}
