package podstats

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/usage"
)

// What CRI and the kernel tell, in the words of the summary. What is not known is nil, never 0.

func number(v *criv1.UInt64Value) *uint64 {
	if v == nil {
		return nil
	}
	n := v.Value
	return &n
}

func known(n uint64) *uint64 { return &n }

func nanos(n int64) metav1.Time { return metav1.NewTime(time.Unix(0, n)) }

func cpuOf(u *criv1.CpuUsage) *stats.CPUStats {
	if u == nil {
		return nil
	}
	return &stats.CPUStats{
		Time: nanos(u.Timestamp), UsageCoreNanoSeconds: number(u.UsageCoreNanoSeconds), UsageNanoCores: number(u.UsageNanoCores), PSI: psiOf(u.Psi),
	}
}

func memoryOf(u *criv1.MemoryUsage) *stats.MemoryStats {
	if u == nil {
		return nil
	}
	return &stats.MemoryStats{
		Time: nanos(u.Timestamp), AvailableBytes: number(u.AvailableBytes), UsageBytes: number(u.UsageBytes), WorkingSetBytes: number(u.WorkingSetBytes),
		RSSBytes: number(u.RssBytes), PageFaults: number(u.PageFaults), MajorPageFaults: number(u.MajorPageFaults), PSI: psiOf(u.Psi),
	}
}

func ioOf(u *criv1.IoUsage) *stats.IOStats {
	if u == nil {
		return nil
	}
	return &stats.IOStats{Time: nanos(u.Timestamp), PSI: psiOf(u.Psi)}
}

func swapOf(u *criv1.SwapUsage) *stats.SwapStats {
	if u == nil {
		return nil
	}
	return &stats.SwapStats{Time: nanos(u.Timestamp), SwapAvailableBytes: number(u.SwapAvailableBytes), SwapUsageBytes: number(u.SwapUsageBytes)}
}

func psiOf(p *criv1.PsiStats) *stats.PSIStats {
	if p == nil {
		return nil
	}
	of := func(d *criv1.PsiData) stats.PSIData {
		return stats.PSIData{Total: d.GetTotal(), Avg10: d.GetAvg10(), Avg60: d.GetAvg60(), Avg300: d.GetAvg300()}
	}
	return &stats.PSIStats{Full: of(p.Full), Some: of(p.Some)}
}

func networkOf(u *criv1.NetworkUsage) *stats.NetworkStats {
	if u == nil {
		return nil
	}
	of := func(i *criv1.NetworkInterfaceUsage) stats.InterfaceStats {
		return stats.InterfaceStats{
			Name: i.Name, RxBytes: number(i.RxBytes), RxErrors: number(i.RxErrors), TxBytes: number(i.TxBytes), TxErrors: number(i.TxErrors),
		}
	}
	n := &stats.NetworkStats{Time: nanos(u.Timestamp)}
	if i := u.DefaultInterface; i != nil {
		n.InterfaceStats = of(i)
		n.Interfaces = append(n.Interfaces, n.InterfaceStats)
	}
	for _, i := range u.Interfaces {
		n.Interfaces = append(n.Interfaces, of(i))
	}
	return n
}

// diskOf is a file system, and what somebody uses of it: nil, all that is in use.
func diskOf(at time.Time, d usage.Disk, used, inodes *uint64) *stats.FsStats {
	fs := &stats.FsStats{
		Time: metav1.NewTime(at), CapacityBytes: known(d.Capacity), AvailableBytes: known(d.Available), UsedBytes: used,
		Inodes: known(d.Inodes), InodesFree: known(d.InodesFree), InodesUsed: inodes,
	}
	if used == nil {
		fs.UsedBytes = known(d.Used())
	}
	if inodes == nil {
		fs.InodesUsed = known(d.Inodes - min(d.Inodes, d.InodesFree))
	}
	return fs
}

// pressureOf turns the kernel's microseconds into nanoseconds.
func pressureOf(p *cgroup.Pressure) *stats.PSIStats {
	if p == nil {
		return nil
	}
	of := func(s *cgroup.Stall) stats.PSIData {
		if s == nil {
			return stats.PSIData{}
		}
		return stats.PSIData{Total: s.Total * uint64(time.Microsecond), Avg10: s.Avg10, Avg60: s.Avg60, Avg300: s.Avg300}
	}
	return &stats.PSIStats{Full: of(p.Full), Some: of(p.Some)}
}

// sum adds the containers of a pod up, for a runtime that tells nothing of pods as a whole. What one of them does not tell, the pod does not.
func sum(pod *stats.PodStats) {
	var cpu stats.CPUStats
	var memory stats.MemoryStats
	for i, c := range pod.Containers {
		if c.CPU == nil || c.Memory == nil {
			return
		}
		add := func(to **uint64, n *uint64) {
			switch {
			case n == nil || *to == nil && i > 0:
				*to = nil
			case *to == nil:
				*to = known(*n)
			default:
				**to += *n
			}
		}
		add(&cpu.UsageCoreNanoSeconds, c.CPU.UsageCoreNanoSeconds)
		add(&cpu.UsageNanoCores, c.CPU.UsageNanoCores)
		add(&memory.UsageBytes, c.Memory.UsageBytes)
		add(&memory.WorkingSetBytes, c.Memory.WorkingSetBytes)
		add(&memory.RSSBytes, c.Memory.RSSBytes)
		add(&memory.PageFaults, c.Memory.PageFaults)
		add(&memory.MajorPageFaults, c.Memory.MajorPageFaults)
		if cpu.Time.Before(&c.CPU.Time) {
			cpu.Time = c.CPU.Time
		}
		if memory.Time.Before(&c.Memory.Time) {
			memory.Time = c.Memory.Time
		}
	}
	if len(pod.Containers) > 0 {
		pod.CPU, pod.Memory = &cpu, &memory
	}
}

// swapSum is the swap of a pod, of which CRI tells by container only.
func swapSum(pod *stats.PodStats) *stats.SwapStats {
	var all *stats.SwapStats
	for _, c := range pod.Containers {
		if c.Swap == nil || c.Swap.SwapUsageBytes == nil {
			continue
		}
		if all == nil {
			all = &stats.SwapStats{Time: c.Swap.Time, SwapUsageBytes: known(0)}
		}
		*all.SwapUsageBytes += *c.Swap.SwapUsageBytes
	}
	return all
}
