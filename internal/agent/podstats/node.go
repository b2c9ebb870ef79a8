package podstats

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/usage"
)

// node is what the machine has used, and the memory that it has.
func (c *Collector) node() (n stats.NodeStats, total uint64, err error) {
	m, err := usage.Read()
	if err != nil {
		return stats.NodeStats{}, 0, err
	}
	at := metav1.NewTime(m.At)
	cpu, memory, io := cgroup.MachinePressure()
	n = stats.NodeStats{
		NodeName: c.cfg.NodeName, StartTime: metav1.NewTime(m.Boot),
		CPU: &stats.CPUStats{Time: at, UsageCoreNanoSeconds: known(m.CPU), PSI: pressureOf(cpu)},
		Memory: &stats.MemoryStats{
			Time: at, UsageBytes: known(m.Memory.Used), WorkingSetBytes: known(m.Memory.WorkingSet()), RSSBytes: known(m.Memory.Anonymous),
			AvailableBytes: known(m.Memory.Total - min(m.Memory.Total, m.Memory.WorkingSet())),
			PageFaults:     known(m.PageFaults), MajorPageFaults: known(m.MajorPageFaults), PSI: pressureOf(memory),
		},
		Swap: &stats.SwapStats{Time: at, SwapUsageBytes: known(m.Swap.Total - min(m.Swap.Total, m.Swap.Free)), SwapAvailableBytes: known(m.Swap.Free)},
	}
	if io != nil {
		n.IO = &stats.IOStats{Time: at, PSI: pressureOf(io)}
	}
	threads, most := int64(m.Threads), int64(m.MaxThreads) // counts of threads
	n.Rlimit = &stats.RlimitStats{Time: at, MaxPID: &most, NumOfRunningProcesses: &threads}
	if n.Network, err = hostNetwork(); err != nil {
		c.once("the host's network interfaces are not told of", err)
	}
	n.SystemContainers = c.systemContainers()
	return n, m.Memory.Total, nil
}

func hostNetwork() (*stats.NetworkStats, error) {
	at := metav1.Now()
	all, err := usage.Interfaces()
	if err != nil || len(all) == 0 {
		return nil, err
	}
	n := &stats.NetworkStats{Time: at}
	for _, i := range all {
		n.Interfaces = append(n.Interfaces, stats.InterfaceStats{
			Name: i.Name, RxBytes: known(i.RxBytes), RxErrors: known(i.RxErrors), TxBytes: known(i.TxBytes), TxErrors: known(i.TxErrors),
		})
	}
	n.InterfaceStats = n.Interfaces[0]
	return n, nil
}

// systemContainers are the cgroup of all pods, if it is there.
func (c *Collector) systemContainers() []stats.ContainerStats {
	if c.cgroups == nil || c.cfg.PodsCgroup == nil {
		return nil
	}
	at, err := c.cfg.PodsCgroup()
	if err != nil {
		return nil
	}
	s, err := c.cgroups.Stats(at, cgroup.Basic)
	if err != nil || s.CPU == nil || s.Memory == nil {
		return nil // it comes with the first pod
	}
	m := s.Memory
	one := stats.ContainerStats{
		Name: stats.SystemContainerPods, StartTime: metav1.NewTime(c.began),
		CPU: &stats.CPUStats{Time: metav1.NewTime(s.CPU.At), UsageCoreNanoSeconds: known(s.CPU.Usage), PSI: pressureOf(s.CPUPressure)},
		Memory: &stats.MemoryStats{
			Time: metav1.NewTime(m.At), UsageBytes: known(m.Usage), WorkingSetBytes: known(m.WorkingSet()), RSSBytes: known(m.RSS),
			PageFaults: known(m.PageFaults - min(m.PageFaults, m.MajorPageFaults)), MajorPageFaults: known(m.MajorPageFaults), PSI: pressureOf(s.MemoryPressure),
		},
	}
	if m.Limit != cgroup.Unlimited {
		one.Memory.AvailableBytes = known(m.Limit - min(m.Limit, m.WorkingSet()))
	}
	if s.Swap != nil {
		one.Swap = &stats.SwapStats{Time: metav1.NewTime(s.Swap.At), SwapUsageBytes: known(s.Swap.Usage)}
	}
	return []stats.ContainerStats{one}
}

// disks asks each file system once for a summary. One that cannot be asked is not told of.
type disks map[string]*stats.FsStats

func (d disks) of(path string) *stats.FsStats {
	if fs, known := d[path]; known {
		return fs
	}
	var fs *stats.FsStats
	if state, err := usage.DiskOf(path); err == nil {
		fs = diskOf(time.Now(), state, nil, nil)
	}
	d[path] = fs
	return fs
}

// with is what somebody uses, with the file system at path that it is on.
func (d disks) with(used *stats.FsStats, path string) *stats.FsStats {
	if used == nil {
		return nil
	}
	all := *used
	if fs := d.of(path); fs != nil {
		all.CapacityBytes, all.AvailableBytes, all.Inodes, all.InodesFree = fs.CapacityBytes, fs.AvailableBytes, fs.Inodes, fs.InodesFree
	}
	return &all
}
