package stats

import (
	"strconv"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/network"
)

// emit adds a value, with the values of the metric's own labels.
type emit func(value uint64, labels ...string)

// metric is one line of the table: what describes a metric, and what reads it. A value that the host does not count is not
// emitted.
type metric struct {
	name, help string
	kind       cri.MetricType
	keys       []string // labels beside baseKeys
	of         func(*subject, emit)
	measured   bool // in the background: the value has a time
}

const (
	counter = cri.MetricType_COUNTER
	gauge   = cri.MetricType_GAUGE
)

// metrics are those that a kubelet shows as its own when it takes stats from CRI (KEP-2371), with cAdvisor's names and
// meanings. CRI's values are whole numbers, so seconds are whole seconds. 0 is no limit.
var metrics = []metric{
	{name: "container_blkio_device_usage_total", help: "Bytes that the container has read from and written to a block device", kind: counter,
		keys: []string{"device", "major", "minor", "operation"}, of: func(s *subject, emit emit) {
			for _, d := range s.cgroup.IO {
				name, major, minor := s.nameOf(d.Major, d.Minor), strconv.FormatUint(d.Major, 10), strconv.FormatUint(d.Minor, 10)
				emit(d.ReadBytes, name, major, minor, "Read")
				emit(d.WriteBytes, name, major, minor, "Write")
			}
		}},
	ofBandwidth("container_cpu_cfs_periods_total", "Number of periods in which the quota was enforced", func(c *cgroup.CPUStats) uint64 { return c.Periods }),
	ofBandwidth("container_cpu_cfs_throttled_periods_total", "Number of periods in which the container was throttled",
		func(c *cgroup.CPUStats) uint64 { return c.Throttled }),
	ofBandwidth("container_cpu_cfs_throttled_seconds_total", "Time for which the container was throttled, in seconds",
		func(c *cgroup.CPUStats) uint64 { return seconds(c.ThrottledTime) }),
	ofTimes("container_cpu_system_seconds_total", "CPU time spent in the kernel, in seconds", func(c *cgroup.CPUStats) uint64 { return seconds(c.System) }),
	{name: "container_cpu_usage_seconds_total", help: "CPU time spent, in seconds", kind: counter, keys: []string{"cpu"}, of: func(s *subject, emit emit) {
		if s.cgroup.CPU != nil {
			emit(seconds(s.cgroup.CPU.Usage), "total")
		}
	}},
	ofTimes("container_cpu_user_seconds_total", "CPU time spent outside of the kernel, in seconds", func(c *cgroup.CPUStats) uint64 { return seconds(c.User) }),
	ofOpen("container_file_descriptors", "Number of files that the container's processes have open", func(o *openFiles) uint64 { return o.files }),
	ofLayers("container_fs_inodes_free", "Number of inodes that are free on the file system of the writable layer", func(s *subject) uint64 { return s.layers.Ffree }),
	ofLayers("container_fs_inodes_total", "Number of inodes of the file system of the writable layer", func(s *subject) uint64 { return s.layers.Files }),
	ofLayers("container_fs_limit_bytes", "Size of the file system of the writable layer, in bytes",
		func(s *subject) uint64 { return s.layers.Blocks * uint64(s.layers.Bsize) }),
	ofIO("container_fs_reads_bytes_total", "Bytes read from a block device", func(d *cgroup.DeviceIO) uint64 { return d.ReadBytes }),
	ofIO("container_fs_reads_total", "Number of reads from a block device", func(d *cgroup.DeviceIO) uint64 { return d.Reads }),
	{name: "container_fs_usage_bytes", help: "Size of the container's writable layer, in bytes", kind: gauge, keys: []string{"device"}, measured: true,
		of: func(s *subject, emit emit) {
			if s.layer != nil {
				emit(s.layer.bytes, s.device)
			}
		}},
	ofIO("container_fs_writes_bytes_total", "Bytes written to a block device", func(d *cgroup.DeviceIO) uint64 { return d.WriteBytes }),
	ofIO("container_fs_writes_total", "Number of writes to a block device", func(d *cgroup.DeviceIO) uint64 { return d.Writes }),
	{name: "container_hugetlb_max_usage_bytes", help: "The most huge pages that were used, in bytes", kind: gauge, keys: []string{"pagesize"},
		of: func(s *subject, emit emit) {
			for _, p := range s.cgroup.Hugepages {
				if p.HasMaxUsage {
					emit(p.MaxUsage, p.Size)
				}
			}
		}},
	{name: "container_hugetlb_usage_bytes", help: "Huge pages in use, in bytes", kind: gauge, keys: []string{"pagesize"}, of: func(s *subject, emit emit) {
		for _, p := range s.cgroup.Hugepages {
			emit(p.Usage, p.Size)
		}
	}},
	{name: "container_last_seen", help: "When the metrics were read, in seconds since 1970", kind: gauge,
		of: func(s *subject, emit emit) { emit(uint64(s.now.Unix())) }},
	ofMemory("container_memory_cache", "Page cache, in bytes", gauge, func(m *cgroup.MemoryStats) uint64 { return m.Cache }),
	ofMemory("container_memory_failcnt", "Number of times that the memory limit was hit", counter, func(m *cgroup.MemoryStats) uint64 { return m.FailCount }),
	{name: "container_memory_failures_total", help: "Number of page faults", kind: counter, keys: []string{"failure_type", "scope"},
		of: func(s *subject, emit emit) {
			if m := s.cgroup.Memory; m != nil {
				for _, scope := range []string{"container", "hierarchy"} {
					emit(m.PageFaults, "pgfault", scope)
					emit(m.MajorPageFaults, "pgmajfault", scope)
				}
			}
		}},
	{name: "container_memory_kernel_usage", help: "Memory that the kernel uses for the container, in bytes", kind: gauge, of: func(s *subject, emit emit) {
		if m := s.cgroup.Memory; m != nil && m.HasKernel {
			emit(m.Kernel)
		}
	}},
	ofMemory("container_memory_mapped_file", "Files mapped into memory, in bytes", gauge, func(m *cgroup.MemoryStats) uint64 { return m.MappedFile }),
	{name: "container_memory_max_usage_bytes", help: "The most memory that was used, in bytes", kind: gauge, of: func(s *subject, emit emit) {
		if m := s.cgroup.Memory; m != nil && m.HasMaxUsage {
			emit(m.MaxUsage)
		}
	}},
	ofMemory("container_memory_rss", "Anonymous memory, in bytes", gauge, func(m *cgroup.MemoryStats) uint64 { return m.RSS }),
	{name: "container_memory_swap", help: "Swap in use, in bytes", kind: gauge, of: func(s *subject, emit emit) {
		switch {
		case s.cgroup.Swap != nil:
			emit(s.cgroup.Swap.Usage)
		case s.cgroup.Memory != nil:
			emit(s.cgroup.Memory.SwappedOut)
		}
	}},
	ofMemory("container_memory_usage_bytes", "Memory in use, with page cache, in bytes", gauge, func(m *cgroup.MemoryStats) uint64 { return m.Usage }),
	ofMemory("container_memory_working_set_bytes", "Memory in use but for page cache that was not used lately, in bytes", gauge,
		func(m *cgroup.MemoryStats) uint64 { return m.WorkingSet() }),
	ofInterfaces("container_network_receive_bytes_total", "Bytes received", func(i *network.InterfaceStat) uint64 { return i.RxBytes }),
	ofInterfaces("container_network_receive_errors_total", "Number of errors while receiving", func(i *network.InterfaceStat) uint64 { return i.RxErrors }),
	ofInterfaces("container_network_receive_packets_dropped_total", "Number of received packets that were dropped",
		func(i *network.InterfaceStat) uint64 { return i.RxDropped }),
	ofInterfaces("container_network_receive_packets_total", "Number of packets received", func(i *network.InterfaceStat) uint64 { return i.RxPackets }),
	ofInterfaces("container_network_transmit_bytes_total", "Bytes sent", func(i *network.InterfaceStat) uint64 { return i.TxBytes }),
	ofInterfaces("container_network_transmit_errors_total", "Number of errors while sending", func(i *network.InterfaceStat) uint64 { return i.TxErrors }),
	ofInterfaces("container_network_transmit_packets_dropped_total", "Number of packets that were dropped and not sent",
		func(i *network.InterfaceStat) uint64 { return i.TxDropped }),
	ofInterfaces("container_network_transmit_packets_total", "Number of packets sent", func(i *network.InterfaceStat) uint64 { return i.TxPackets }),
	ofMemory("container_oom_events_total", "Number of processes that were killed for want of memory", counter,
		func(m *cgroup.MemoryStats) uint64 { return m.OOMKills }),
	ofPressure("container_pressure_cpu_stalled_seconds_total", "Time for which all tasks waited for a CPU, in seconds", func(s *cgroup.Stats) *cgroup.Stall { return full(s.CPUPressure) }),
	ofPressure("container_pressure_cpu_waiting_seconds_total", "Time for which some task waited for a CPU, in seconds", func(s *cgroup.Stats) *cgroup.Stall { return some(s.CPUPressure) }),
	ofPressure("container_pressure_io_stalled_seconds_total", "Time for which all tasks waited for I/O, in seconds", func(s *cgroup.Stats) *cgroup.Stall { return full(s.IOPressure) }),
	ofPressure("container_pressure_io_waiting_seconds_total", "Time for which some task waited for I/O, in seconds", func(s *cgroup.Stats) *cgroup.Stall { return some(s.IOPressure) }),
	ofPressure("container_pressure_memory_stalled_seconds_total", "Time for which all tasks waited for memory, in seconds", func(s *cgroup.Stats) *cgroup.Stall { return full(s.MemoryPressure) }),
	ofPressure("container_pressure_memory_waiting_seconds_total", "Time for which some task waited for memory, in seconds", func(s *cgroup.Stats) *cgroup.Stall { return some(s.MemoryPressure) }),
	{name: "container_processes", help: "Number of processes", kind: gauge, of: func(s *subject, emit emit) {
		if s.cgroup.CPU != nil { // there is a cgroup to itself
			emit(s.processes)
		}
	}},
	ofOpen("container_sockets", "Number of sockets that the container's processes have open", func(o *openFiles) uint64 { return o.sockets }),
	ofLimits("container_spec_cpu_period", "Period of the CPU quota, in microseconds", func(l *cgroup.CPULimits) (uint64, bool) { return l.Period, true }),
	ofLimits("container_spec_cpu_quota", "CPU quota a period, in microseconds", func(l *cgroup.CPULimits) (uint64, bool) { return l.Quota, l.Quota != cgroup.Unlimited }),
	ofLimits("container_spec_cpu_shares", "CPU shares", func(l *cgroup.CPULimits) (uint64, bool) { return l.Shares, true }),
	ofMemory("container_spec_memory_limit_bytes", "Memory limit, in bytes; 0: none", gauge, func(m *cgroup.MemoryStats) uint64 { return limit(m.Limit) }),
	ofMemory("container_spec_memory_reservation_limit_bytes", "Soft memory limit, in bytes; 0: none", gauge,
		func(m *cgroup.MemoryStats) uint64 { return limit(m.Reservation) }),
	{name: "container_spec_memory_swap_limit_bytes", help: "Swap limit, in bytes; 0: none", kind: gauge, of: func(s *subject, emit emit) {
		switch {
		case s.cgroup.Swap != nil:
			emit(limit(s.cgroup.Swap.Limit))
		case s.cgroup.Memory != nil:
			emit(0)
		}
	}},
	{name: "container_start_time_seconds", help: "When the container was started, in seconds since 1970", kind: gauge, of: func(s *subject, emit emit) {
		if s.container != nil {
			emit(uint64(max(0, s.container.StartedAt.Unix())))
		}
	}},
	{name: "container_threads", help: "Number of threads, those that are processes too", kind: gauge, of: func(s *subject, emit emit) {
		if s.cgroup.PIDs != nil {
			emit(s.cgroup.PIDs.Tasks)
		}
	}},
	{name: "container_threads_max", help: "Limit of threads; 0: none", kind: gauge, of: func(s *subject, emit emit) {
		if s.cgroup.PIDs != nil {
			emit(limit(s.cgroup.PIDs.Limit))
		}
	}},
	{name: "container_ulimits_soft", help: "Soft limit of the container's first process", kind: gauge, keys: []string{"ulimit"}, of: func(s *subject, emit emit) {
		if s.open != nil && s.open.limit > 0 {
			emit(s.open.limit, "max_open_files")
		}
	}},
}

func ofMemory(name, help string, kind cri.MetricType, value func(*cgroup.MemoryStats) uint64) metric {
	return metric{name: name, help: help, kind: kind, of: func(s *subject, emit emit) {
		if s.cgroup.Memory != nil {
			emit(value(s.cgroup.Memory))
		}
	}}
}

func ofTimes(name, help string, value func(*cgroup.CPUStats) uint64) metric {
	return metric{name: name, help: help, kind: counter, of: func(s *subject, emit emit) {
		if c := s.cgroup.CPU; c != nil && c.HasTimes {
			emit(value(c))
		}
	}}
}

func ofBandwidth(name, help string, value func(*cgroup.CPUStats) uint64) metric {
	return metric{name: name, help: help, kind: counter, of: func(s *subject, emit emit) {
		if c := s.cgroup.CPU; c != nil && c.HasBandwidth {
			emit(value(c))
		}
	}}
}

func ofOpen(name, help string, value func(*openFiles) uint64) metric {
	return metric{name: name, help: help, kind: gauge, of: func(s *subject, emit emit) {
		if s.open != nil {
			emit(value(s.open))
		}
	}}
}

func ofLayers(name, help string, value func(*subject) uint64) metric {
	return metric{name: name, help: help, kind: gauge, keys: []string{"device"}, of: func(s *subject, emit emit) {
		if s.layers != nil {
			emit(value(s), s.device)
		}
	}}
}

func ofIO(name, help string, value func(*cgroup.DeviceIO) uint64) metric {
	return metric{name: name, help: help, kind: counter, keys: []string{"device"}, of: func(s *subject, emit emit) {
		for i := range s.cgroup.IO {
			d := &s.cgroup.IO[i]
			device := s.nameOf(d.Major, d.Minor)
			if device == "" { // two that have no name must not look the same
				device = strconv.FormatUint(d.Major, 10) + ":" + strconv.FormatUint(d.Minor, 10)
			}
			emit(value(d), device)
		}
	}}
}

func ofInterfaces(name, help string, value func(*network.InterfaceStat) uint64) metric {
	return metric{name: name, help: help, kind: counter, keys: []string{"interface"}, of: func(s *subject, emit emit) {
		for i := range s.interfaces {
			if s.interfaces[i].Name != "lo" {
				emit(value(&s.interfaces[i]), s.interfaces[i].Name)
			}
		}
	}}
}

func ofPressure(name, help string, stall func(*cgroup.Stats) *cgroup.Stall) metric {
	return metric{name: name, help: help, kind: counter, of: func(s *subject, emit emit) {
		if p := stall(&s.cgroup); p != nil {
			emit(p.Total / uint64(time.Second/time.Microsecond))
		}
	}}
}

func ofLimits(name, help string, value func(*cgroup.CPULimits) (uint64, bool)) metric {
	return metric{name: name, help: help, kind: gauge, of: func(s *subject, emit emit) {
		if s.cgroup.Limits == nil {
			return
		}
		if n, ok := value(s.cgroup.Limits); ok {
			emit(n)
		}
	}}
}

func some(p *cgroup.Pressure) *cgroup.Stall {
	if p == nil {
		return nil
	}
	return p.Some
}

func full(p *cgroup.Pressure) *cgroup.Stall {
	if p == nil {
		return nil
	}
	return p.Full
}

// seconds turns nanoseconds into whole seconds.
func seconds(n uint64) uint64 { return n / uint64(time.Second) }

// limit is 0 for none.
func limit(n uint64) uint64 {
	if n == cgroup.Unlimited {
		return 0
	}
	return n
}
