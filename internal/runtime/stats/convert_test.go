package stats

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/network"
)

func TestConversions(t *testing.T) {
	at := time.Unix(100, 5)
	s := &cgroup.Stats{
		Memory:         &cgroup.MemoryStats{At: at, Usage: 100, InactiveFile: 30, RSS: 50, PageFaults: 9, MajorPageFaults: 2, Limit: 200},
		Swap:           &cgroup.SwapStats{At: at, Usage: 5, Limit: 20},
		MemoryPressure: &cgroup.Pressure{Some: &cgroup.Stall{Avg10: 1.5, Avg60: 2.5, Avg300: 3.5, Total: 7}},
		IOPressure:     &cgroup.Pressure{Some: &cgroup.Stall{Total: 1}, Full: &cgroup.Stall{Total: 2}}, IOPressureAt: at,
	}
	for _, c := range []struct{ got, want proto.Message }{
		{memoryUsage(s), &cri.MemoryUsage{Timestamp: at.UnixNano(), UsageBytes: number(100), WorkingSetBytes: number(70), AvailableBytes: number(130), RssBytes: number(50),
			PageFaults: number(7), MajorPageFaults: number(2), Psi: &cri.PsiStats{Some: &cri.PsiData{Total: 7000, Avg10: 1.5, Avg60: 2.5, Avg300: 3.5}}}},
		{swapUsage(s), &cri.SwapUsage{Timestamp: at.UnixNano(), SwapUsageBytes: number(5), SwapAvailableBytes: number(15)}},
		{ioUsage(s), &cri.IoUsage{Timestamp: at.UnixNano(), Psi: &cri.PsiStats{Some: &cri.PsiData{Total: 1000}, Full: &cri.PsiData{Total: 2000}}}},
		{left(100, 200), number(0)},
	} {
		if !proto.Equal(c.got, c.want) {
			t.Errorf("%v, want %v", c.got, c.want)
		}
	}
	if left(cgroup.Unlimited, 1) != nil || memoryUsage(&cgroup.Stats{}) != nil || swapUsage(&cgroup.Stats{}) != nil || ioUsage(&cgroup.Stats{}) != nil || psi(nil) != nil {
		t.Error("what the host does not count is told")
	}

	for name, c := range map[string]struct {
		interfaces []string
		first      string
		rest       []string
	}{
		"bridge": {[]string{"lo", "eth0"}, "eth0", []string{"lo"}}, "several": {[]string{"lo", "net1", "eth0", "net2"}, "eth0", []string{"lo", "net1", "net2"}},
		"of another name": {[]string{"lo", "net1", "net2"}, "net1", []string{"lo", "net2"}}, "loopback": {[]string{"lo"}, "", []string{"lo"}},
	} {
		var all []network.InterfaceStat
		for i, n := range c.interfaces {
			all = append(all, network.InterfaceStat{Name: n, RxBytes: uint64(i), RxErrors: 1, TxBytes: 2, TxErrors: 3})
		}
		u := networkUsage(at, all)
		var rest []string
		for _, i := range u.GetInterfaces() {
			rest = append(rest, i.GetName())
		}
		if u.GetDefaultInterface().GetName() != c.first || !slices.Equal(rest, c.rest) || u.GetTimestamp() != at.UnixNano() {
			t.Errorf("%s: %v", name, u)
		}
		if d := u.GetDefaultInterface(); d != nil && (d.GetTxBytes().GetValue() != 2 || d.GetTxErrors().GetValue() != 3 || d.GetRxErrors().GetValue() != 1 ||
			c.interfaces[d.GetRxBytes().GetValue()] != c.first) {
			t.Errorf("%s: %v", name, d)
		}
	}
}

func TestSum(t *testing.T) {
	one := &cri.ContainerStats{Cpu: &cri.CpuUsage{Timestamp: 5, UsageCoreNanoSeconds: number(10), UsageNanoCores: number(3)},
		Memory: &cri.MemoryUsage{Timestamp: 7, UsageBytes: number(100), WorkingSetBytes: number(70), RssBytes: number(1), PageFaults: number(2), MajorPageFaults: number(3)}}
	unknown := proto.CloneOf(one)
	unknown.Cpu.UsageNanoCores, unknown.Cpu.Timestamp = nil, 9
	var both, known cri.LinuxPodSandboxStats
	sum(&known, one)
	sum(&known, one)
	sum(&known, &cri.ContainerStats{}) // it does not run
	sum(&both, one)
	sum(&both, unknown)
	sum(&both, one)
	if want := (&cri.CpuUsage{Timestamp: 5, UsageCoreNanoSeconds: number(20), UsageNanoCores: number(6)}); !proto.Equal(known.Cpu, want) {
		t.Errorf("cpu %v, want %v", known.Cpu, want)
	}
	if want := (&cri.CpuUsage{Timestamp: 9, UsageCoreNanoSeconds: number(30)}); !proto.Equal(both.Cpu, want) {
		t.Errorf("cpu %v, want %v: unknown of one is unknown of all", both.Cpu, want)
	}
	if want := (&cri.MemoryUsage{Timestamp: 7, UsageBytes: number(200), WorkingSetBytes: number(140), RssBytes: number(2), PageFaults: number(4), MajorPageFaults: number(6)}); !proto.Equal(known.Memory, want) {
		t.Errorf("memory %v, want %v", known.Memory, want)
	}
}

// Every line of the table, with all that a host may count, has a value for each of its keys, and no value twice.
func TestTable(t *testing.T) {
	stall := &cgroup.Pressure{Some: &cgroup.Stall{Total: 3e6}, Full: &cgroup.Stall{Total: 2e6}}
	s := &subject{labels: make([]string, len(baseKeys)), now: time.Unix(50, 0), container: &Container{StartedAt: time.Unix(40, 0)}, processes: 2,
		layer: &layerUsage{at: time.Unix(45, 0), bytes: 7}, open: &openFiles{files: 3, sockets: 1, limit: 1024}, nameOf: func(major, _ uint64) string {
			if major == 8 {
				return "/dev/sda"
			}
			return ""
		},
		interfaces: []network.InterfaceStat{{Name: "lo", RxBytes: 1}, {Name: "eth0", RxBytes: 2}},
		cgroup: cgroup.Stats{
			CPU:    &cgroup.CPUStats{Usage: 3e9, User: 2e9, System: 1e9, Periods: 1, ThrottledTime: 5e9, HasTimes: true, HasBandwidth: true},
			Memory: &cgroup.MemoryStats{Usage: 10, Limit: cgroup.Unlimited, Reservation: cgroup.Unlimited, HasKernel: true, HasMaxUsage: true},
			Swap:   &cgroup.SwapStats{Usage: 1, Limit: cgroup.Unlimited}, CPUPressure: stall, MemoryPressure: stall, IOPressure: stall,
			IO: []cgroup.DeviceIO{{Major: 8, ReadBytes: 1}, {Major: 9}, {Major: 9, Minor: 1}}, Hugepages: []cgroup.HugepageStats{{Size: "2MB", HasMaxUsage: true}},
			PIDs: &cgroup.PIDStats{Tasks: 3, Limit: cgroup.Unlimited}, Limits: &cgroup.CPULimits{Shares: 1024, Quota: 50000, Period: 100000},
		}}
	collect := func(name string, of func(*subject, emit), s *subject) (values []uint64, labels [][]string) {
		of(s, func(v uint64, l ...string) { values, labels = append(values, v), append(labels, l) })
		return values, labels
	}
	for _, m := range metrics {
		values, labels := collect(m.name, m.of, s)
		switch { // the file system's are tested with a real one
		case len(values) == 0 && m.name != "container_fs_inodes_free" && m.name != "container_fs_inodes_total" && m.name != "container_fs_limit_bytes":
			t.Errorf("%s has no value", m.name)
		}
		for i, l := range labels {
			if len(l) != len(m.keys) {
				t.Errorf("%s: labels %q for the keys %q", m.name, l, m.keys)
			}
			if slices.ContainsFunc(labels[:i], func(other []string) bool { return slices.Equal(other, l) }) {
				t.Errorf("%s: %q twice", m.name, l)
			}
		}
		want, listed := map[string]uint64{"container_cpu_usage_seconds_total": 3, "container_cpu_cfs_throttled_seconds_total": 5, "container_pressure_io_stalled_seconds_total": 2,
			"container_pressure_cpu_waiting_seconds_total": 3, "container_spec_memory_limit_bytes": 0, "container_spec_memory_swap_limit_bytes": 0, "container_threads_max": 0,
			"container_spec_cpu_quota": 50000, "container_last_seen": 50, "container_start_time_seconds": 40, "container_fs_usage_bytes": 7,
			"container_network_receive_bytes_total": 2, "container_threads": 3}[m.name]
		if listed && (len(values) != 1 || values[0] != want) {
			t.Errorf("%s is %v, want %d", m.name, values, want)
		}
		// A host that counts nothing has nothing to tell but the time.
		if values, _ := collect(m.name, m.of, &subject{now: time.Unix(50, 0)}); len(values) > 0 && m.name != "container_last_seen" {
			t.Errorf("%s of nothing is %v", m.name, values)
		}
	}
}
