package stats

import (
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/network"
)

func number(n uint64) *cri.UInt64Value { return &cri.UInt64Value{Value: n} }

// left is what a limit leaves; nil without one.
func left(limit, used uint64) *cri.UInt64Value {
	if limit == cgroup.Unlimited {
		return nil
	}
	return number(limit - min(limit, used))
}

func memoryUsage(s *cgroup.Stats) *cri.MemoryUsage {
	m := s.Memory
	if m == nil {
		return nil
	}
	return &cri.MemoryUsage{
		Timestamp: m.At.UnixNano(), WorkingSetBytes: number(m.WorkingSet()), AvailableBytes: left(m.Limit, m.WorkingSet()), UsageBytes: number(m.Usage),
		RssBytes: number(m.RSS), MajorPageFaults: number(m.MajorPageFaults),
		// The kernel counts all faults, CRI the minor ones.
		PageFaults: number(m.PageFaults - min(m.PageFaults, m.MajorPageFaults)), Psi: psi(s.MemoryPressure),
	}
}

func swapUsage(s *cgroup.Stats) *cri.SwapUsage {
	if s.Swap == nil {
		return nil
	}
	return &cri.SwapUsage{Timestamp: s.Swap.At.UnixNano(), SwapUsageBytes: number(s.Swap.Usage), SwapAvailableBytes: left(s.Swap.Limit, s.Swap.Usage)}
}

func ioUsage(s *cgroup.Stats) *cri.IoUsage {
	if s.IOPressure == nil {
		return nil
	}
	return &cri.IoUsage{Timestamp: s.IOPressureAt.UnixNano(), Psi: psi(s.IOPressure)}
}

func psi(p *cgroup.Pressure) *cri.PsiStats {
	if p == nil {
		return nil
	}
	return &cri.PsiStats{Some: psiData(p.Some), Full: psiData(p.Full)}
}

// psiData turns the kernel's microseconds into CRI's nanoseconds.
func psiData(s *cgroup.Stall) *cri.PsiData {
	if s == nil {
		return nil
	}
	return &cri.PsiData{Total: s.Total * uint64(time.Microsecond), Avg10: s.Avg10, Avg60: s.Avg60, Avg300: s.Avg300}
}

// networkUsage puts the default interface first: the one that sandboxes are connected by, else the first that is not the loopback.
func networkUsage(at time.Time, all []network.InterfaceStat) *cri.NetworkUsage {
	u := &cri.NetworkUsage{Timestamp: at.UnixNano()}
	chosen := -1
	for i, s := range all {
		if s.Name == network.InterfaceName || chosen < 0 && s.Name != "lo" {
			chosen = i
		}
	}
	for i, s := range all {
		one := &cri.NetworkInterfaceUsage{Name: s.Name, RxBytes: number(s.RxBytes), RxErrors: number(s.RxErrors), TxBytes: number(s.TxBytes), TxErrors: number(s.TxErrors)}
		if i == chosen {
			u.DefaultInterface = one
		} else {
			u.Interfaces = append(u.Interfaces, one)
		}
	}
	return u
}

// sum adds the containers' usage up for a sandbox that has no cgroup to itself. What cannot be added, pressure, is left out.
func sum(to *cri.LinuxPodSandboxStats, c *cri.ContainerStats) {
	if u := c.GetCpu(); u != nil {
		if to.Cpu == nil {
			to.Cpu = &cri.CpuUsage{UsageCoreNanoSeconds: number(0), UsageNanoCores: number(0)}
		}
		to.Cpu.Timestamp = max(to.Cpu.Timestamp, u.Timestamp)
		to.Cpu.UsageCoreNanoSeconds.Value += u.GetUsageCoreNanoSeconds().GetValue()
		if u.UsageNanoCores == nil || to.Cpu.UsageNanoCores == nil {
			to.Cpu.UsageNanoCores = nil // unknown of one is unknown of all
		} else {
			to.Cpu.UsageNanoCores.Value += u.UsageNanoCores.Value
		}
	}
	if u := c.GetMemory(); u != nil {
		if to.Memory == nil {
			to.Memory = &cri.MemoryUsage{WorkingSetBytes: number(0), UsageBytes: number(0), RssBytes: number(0), PageFaults: number(0), MajorPageFaults: number(0)}
		}
		m := to.Memory
		m.Timestamp = max(m.Timestamp, u.Timestamp)
		m.WorkingSetBytes.Value += u.GetWorkingSetBytes().GetValue()
		m.UsageBytes.Value += u.GetUsageBytes().GetValue()
		m.RssBytes.Value += u.GetRssBytes().GetValue()
		m.PageFaults.Value += u.GetPageFaults().GetValue()
		m.MajorPageFaults.Value += u.GetMajorPageFaults().GetValue()
	}
}
