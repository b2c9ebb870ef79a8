package runtime_test

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/cgroup"
)

func (n *node) containerStats(id string) *cri.ContainerStats {
	n.Helper()
	resp, err := n.rt.ContainerStats(n.ctx, &cri.ContainerStatsRequest{ContainerId: id})
	n.check(err)
	return resp.GetStats()
}

func (n *node) sandboxStats(id string) *cri.PodSandboxStats {
	n.Helper()
	resp, err := n.rt.PodSandboxStats(n.ctx, &cri.PodSandboxStatsRequest{PodSandboxId: id})
	n.check(err)
	return resp.GetStats()
}

// statsIDs are the ids of the containers that a filter lets through, as listed; what is streamed must be the same.
func (n *node) statsIDs(f *cri.ContainerStatsFilter) (ids []string) {
	n.Helper()
	resp, err := n.rt.ListContainerStats(n.ctx, &cri.ListContainerStatsRequest{Filter: f})
	n.check(err)
	for _, st := range resp.GetStats() {
		ids = append(ids, st.GetAttributes().GetId())
	}
	stream, err := n.rt.StreamContainerStats(n.ctx, &cri.StreamContainerStatsRequest{Filter: f})
	var streamed []string
	for _, m := range drain(n, stream, err) {
		for _, st := range m.GetContainerStats() {
			streamed = append(streamed, st.GetAttributes().GetId())
		}
	}
	if !slices.Equal(streamed, ids) {
		n.Errorf("filter %v: streamed are %v, listed %v", f, streamed, ids)
	}
	return ids
}

func (n *node) sandboxStatsIDs(f *cri.PodSandboxStatsFilter) (ids []string) {
	n.Helper()
	resp, err := n.rt.ListPodSandboxStats(n.ctx, &cri.ListPodSandboxStatsRequest{Filter: f})
	n.check(err)
	for _, st := range resp.GetStats() {
		ids = append(ids, st.GetAttributes().GetId())
	}
	stream, err := n.rt.StreamPodSandboxStats(n.ctx, &cri.StreamPodSandboxStatsRequest{Filter: f})
	var streamed []string
	for _, m := range drain(n, stream, err) {
		for _, st := range m.GetPodSandboxStats() {
			streamed = append(streamed, st.GetAttributes().GetId())
		}
	}
	if !slices.Equal(streamed, ids) {
		n.Errorf("filter %v: streamed are %v, listed %v", f, streamed, ids)
	}
	return ids
}

// hasPSI says whether this host tells the pressure of a container's cgroup.
func hasPSI(t testing.TB) bool {
	t.Helper()
	host, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat("/proc/pressure/cpu")
	return host.Mode() == cgroup.V2 && err == nil
}

// within fails the test unless a value lies between two others.
func within(t testing.TB, what string, got *cri.UInt64Value, least, most uint64) {
	t.Helper()
	if got == nil || got.GetValue() < least || got.GetValue() > most {
		t.Errorf("%s is %v, want %d to %d", what, got, least, most)
	}
}

const mib = 1 << 20

// worker writes 3 MiB, uses 20 MiB of memory, works for a while, and waits.
const worker = `head -c 3145728 /dev/zero >/file; mkdir /dir; ln /file /dir/same; x=$(head -c 20971520 /dev/zero | tr '\0' x); i=0
	while [ $i -lt 30000 ]; do i=$((i+1)); done; touch /ready; trap 'exit 0' TERM; while :; do sleep 1 & wait; done`

func TestStatsOfRunning(t *testing.T) {
	n := newNode(t)
	began := time.Now()
	sb := n.run("pod")
	cfg := shell("worker", worker)
	cfg.Labels, cfg.Annotations = map[string]string{"app": "worker"}, map[string]string{"note": "verbatim"}
	cfg.Linux.Resources = &cri.LinuxContainerResources{MemoryLimitInBytes: 100 * mib}
	id := n.launch(sb, cfg)
	idle := n.launch(sb, shell("idle", sleeper))
	n.eventually("the worker's work", func() bool {
		_, err := os.Stat(n.dir + "/data/containers/" + id + "/upper/ready")
		return err == nil
	})
	// The layer was measured when the container started; a stat that is asked for later measures it again.
	var st *cri.ContainerStats
	n.eventually("a measurement of the layer", func() bool { st = n.containerStats(id); return st.GetWritableLayer() != nil })

	if a := st.GetAttributes(); a.GetId() != id || a.GetMetadata().GetName() != "worker" || a.GetLabels()["app"] != "worker" || a.GetAnnotations()["note"] != "verbatim" {
		t.Errorf("attributes %v", a)
	}
	now := time.Now()
	for what, at := range map[string]int64{"cpu": st.GetCpu().GetTimestamp(), "memory": st.GetMemory().GetTimestamp(), "layer": st.GetWritableLayer().GetTimestamp()} {
		if at < began.UnixNano() || at > now.UnixNano() {
			t.Errorf("%s: timestamp %d is not between %d and %d", what, at, began.UnixNano(), now.UnixNano())
		}
	}
	spent := uint64(time.Since(began)) * 4
	within(t, "cpu.usage_core_nano_seconds", st.GetCpu().GetUsageCoreNanoSeconds(), 1e6, spent)
	m := st.GetMemory()
	within(t, "memory.usage_bytes", m.GetUsageBytes(), 20*mib, 100*mib)
	within(t, "memory.working_set_bytes", m.GetWorkingSetBytes(), 20*mib, m.GetUsageBytes().GetValue())
	within(t, "memory.rss_bytes", m.GetRssBytes(), 20*mib, 100*mib)
	within(t, "memory.available_bytes", m.GetAvailableBytes(), 100*mib-m.GetWorkingSetBytes().GetValue(), 100*mib-m.GetWorkingSetBytes().GetValue())
	within(t, "memory.page_faults", m.GetPageFaults(), 100, 1e6)
	within(t, "memory.major_page_faults", m.GetMajorPageFaults(), 0, 1e4)
	if n.containerStats(idle).GetMemory().GetAvailableBytes() != nil {
		t.Error("a container without a limit has memory available")
	}
	if s := st.GetSwap(); s != nil {
		within(t, "swap.swap_usage_bytes", s.GetSwapUsageBytes(), 0, 100*mib)
	}
	if hasPSI(t) {
		for what, p := range map[string]*cri.PsiStats{"cpu": st.GetCpu().GetPsi(), "memory": m.GetPsi(), "io": st.GetIo().GetPsi()} {
			if p.GetSome() == nil || p.GetSome().GetTotal()%1000 != 0 {
				t.Errorf("psi of %s: %v", what, p)
			}
		}
		if st.GetIo().GetTimestamp() < began.UnixNano() {
			t.Errorf("io %v", st.GetIo())
		}
	}

	t.Run("the rate is that of two looks", func(t *testing.T) {
		first := st.GetCpu()
		var second *cri.CpuUsage
		n.eventually("a rate", func() bool {
			second = n.containerStats(id).GetCpu()
			return second.GetUsageNanoCores().GetValue() > 0 // it works once a second: on a busy machine not in each
		})
		if span := second.GetTimestamp() - first.GetTimestamp(); span < int64(time.Second) {
			t.Errorf("a rate over %v", time.Duration(span))
		}
		within(t, "usage_nano_cores", second.GetUsageNanoCores(), 1, 4e9)
	})
	t.Run("lists and filters", func(t *testing.T) {
		both := []string{id, idle}
		for name, c := range map[string]struct {
			f    *cri.ContainerStatsFilter
			want []string
		}{
			"all": {nil, both}, "id": {&cri.ContainerStatsFilter{Id: id}, both[:1]}, "a prefix": {&cri.ContainerStatsFilter{Id: id[:16]}, both[:1]},
			"pod": {&cri.ContainerStatsFilter{PodSandboxId: sb}, both}, "nobody": {&cri.ContainerStatsFilter{Id: "nobody"}, nil},
			"labels":       {&cri.ContainerStatsFilter{LabelSelector: map[string]string{"app": "worker"}}, both[:1]},
			"other labels": {&cri.ContainerStatsFilter{PodSandboxId: sb, LabelSelector: map[string]string{"app": "other"}}, nil},
		} {
			if got := n.statsIDs(c.f); !slices.Equal(got, c.want) {
				t.Errorf("%s: %v, want %v", name, got, c.want)
			}
		}
	})
	t.Run("sandbox", func(t *testing.T) {
		st := n.sandboxStats(sb)
		// Two shells that wait for a sleep each: one of them starts its sleep later than it says that it is ready, and one a second.
		n.eventually("four processes", func() bool {
			st = n.sandboxStats(sb)
			return st.GetLinux().GetProcess().GetProcessCount().GetValue() == 4
		})
		l := st.GetLinux()
		if a := st.GetAttributes(); a.GetId() != sb || a.GetMetadata().GetName() != "pod" || a.GetMetadata().GetUid() != "uid-pod" {
			t.Errorf("attributes %v", a)
		}
		within(t, "cpu", l.GetCpu().GetUsageCoreNanoSeconds(), 1e6, uint64(time.Since(began))*4)
		within(t, "memory", l.GetMemory().GetWorkingSetBytes(), 20*mib, 200*mib)
		if nw := l.GetNetwork(); nw.GetDefaultInterface().GetName() != "eth0" || nw.GetTimestamp() < began.UnixNano() {
			t.Errorf("network %v", nw)
		}
		sent := l.GetNetwork().GetDefaultInterface().GetTxBytes().GetValue()
		n.exec(idle, "sh", "-c", "ping -c 1 -W 5 $(ip route | sed -n 's/default via //p' | cut -d' ' -f1)")
		within(t, "network.default_interface.tx_bytes", n.sandboxStats(sb).GetLinux().GetNetwork().GetDefaultInterface().GetTxBytes(), sent+98, sent+10000)
		if len(l.GetContainers()) != 2 || l.GetContainers()[0].GetAttributes().GetId() != id || l.GetProcess().GetTimestamp() < began.UnixNano() {
			t.Errorf("containers %v, processes %v", l.GetContainers(), l.GetProcess())
		}
		for _, c := range l.GetContainers() {
			if c.GetCpu().GetUsageCoreNanoSeconds().GetValue() > l.GetCpu().GetUsageCoreNanoSeconds().GetValue() || c.GetMemory() == nil {
				t.Errorf("a container uses more than its pod: %v, %v", c, l.GetCpu())
			}
		}
		for _, f := range []*cri.PodSandboxStatsFilter{nil, {Id: sb[:12]}} {
			if got := n.sandboxStatsIDs(f); !slices.Equal(got, []string{sb}) {
				t.Errorf("filter %v: %v", f, got)
			}
		}
		if got := n.sandboxStatsIDs(&cri.PodSandboxStatsFilter{LabelSelector: map[string]string{"no": "body"}}); got != nil {
			t.Errorf("sandboxes with a label that none has: %v", got)
		}
	})
	t.Run("what does not run", func(t *testing.T) {
		created := n.create(sb, shell("created", sleeper))
		n.check(n.tryStop(id, 5))
		if got := n.statsIDs(nil); !slices.Equal(got, []string{idle}) {
			t.Errorf("the list has %v, want %s alone", got, idle)
		}
		var st *cri.ContainerStats
		n.eventually("a measurement of the layer as it is now", func() bool {
			st = n.containerStats(id)
			return st.GetWritableLayer().GetUsedBytes().GetValue() > 3*mib
		})
		within(t, "writable_layer.used_bytes", st.GetWritableLayer().GetUsedBytes(), 3*mib, 4*mib) // the file's second name takes nothing
		within(t, "writable_layer.inodes_used", st.GetWritableLayer().GetInodesUsed(), 4, 12)
		if st.GetCpu() != nil || st.GetMemory() != nil || st.GetAttributes().GetId() != id {
			t.Errorf("a container that has ended uses %v", st)
		}
		if st := n.containerStats(created); st.GetAttributes().GetId() != created {
			t.Errorf("a created container's stats are %v", st)
		}
		_, err := n.rt.StopPodSandbox(n.ctx, &cri.StopPodSandboxRequest{PodSandboxId: sb})
		n.check(err)
		if got := n.sandboxStatsIDs(nil); got != nil {
			t.Errorf("sandboxes that are not ready are listed: %v", got)
		}
		if l := n.sandboxStats(sb).GetLinux(); l.GetCpu() != nil || len(l.GetContainers()) != 0 {
			t.Errorf("a sandbox that is not ready uses %v", l)
		}
		n.removeSandbox(sb)
		_, err = n.rt.ContainerStats(n.ctx, &cri.ContainerStatsRequest{ContainerId: id})
		wantCode(t, err, codes.NotFound, id)
		_, err = n.rt.PodSandboxStats(n.ctx, &cri.PodSandboxStatsRequest{PodSandboxId: sb})
		wantCode(t, err, codes.NotFound, sb)
	})
}

// A parent that several pods have in common says nothing of one of them: then its containers are added up.
func TestStatsOfSharedParent(t *testing.T) {
	n := newNode(t)
	var ids []string
	for _, name := range []string{"one", "two"} {
		cfg := n.sandboxConfig(name)
		cfg.Linux.CgroupParent = n.cgroupRoot + "/shared"
		resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: cfg})
		n.check(err)
		ids = append(ids, resp.GetPodSandboxId())
	}
	n.launch(ids[0], shell("a", sleeper))
	n.launch(ids[0], shell("b", sleeper))
	n.launch(ids[1], shell("c", sleeper))
	for i, want := range []uint64{4, 2} {
		var l *cri.LinuxPodSandboxStats
		n.eventually("each shell to have started its sleep", func() bool {
			l = n.sandboxStats(ids[i]).GetLinux()
			return l.GetProcess().GetProcessCount().GetValue() == want
		})
		var cpu, memory uint64
		for _, c := range l.GetContainers() {
			cpu += c.GetCpu().GetUsageCoreNanoSeconds().GetValue()
			memory += c.GetMemory().GetWorkingSetBytes().GetValue()
		}
		within(t, "cpu", l.GetCpu().GetUsageCoreNanoSeconds(), cpu, cpu)
		within(t, "memory", l.GetMemory().GetWorkingSetBytes(), memory, memory)
	}
}

// Lists neither fail nor wait while containers come and go.
func TestStatsWhileContainersGo(t *testing.T) {
	n := newNode(t)
	sb := n.run("pod")
	stays := n.launch(sb, shell("stays", sleeper))
	var wg sync.WaitGroup
	end := make(chan struct{})
	wg.Go(func() {
		defer close(end)
		for i := range 8 {
			id := n.launch(sb, shell(fmt.Sprint("goes", i), sleeper))
			if _, err := n.rt.RemoveContainer(n.ctx, &cri.RemoveContainerRequest{ContainerId: id}); err != nil {
				t.Error(err)
			}
		}
	})
	for lists := 0; ; lists++ {
		select {
		case <-end:
			wg.Wait()
			t.Logf("%d lists", lists)
			return
		default:
		}
		begin := time.Now()
		resp, err := n.rt.ListPodSandboxStats(n.ctx, &cri.ListPodSandboxStatsRequest{})
		if err != nil || len(resp.GetStats()) != 1 || resp.GetStats()[0].GetLinux().GetContainers()[0].GetAttributes().GetId() != stays {
			t.Fatalf("%v, %v", resp, err)
		}
		if took := time.Since(begin); took > patience()/10 {
			t.Errorf("a list took %v", took)
		}
	}
}

// BenchmarkListContainerStats lists the stats of 100 running containers over the socket.
func BenchmarkListContainerStats(b *testing.B) {
	n := newNode(b)
	for i := range 20 {
		sb := n.run(fmt.Sprint("pod", i))
		for j := range 5 {
			n.launch(sb, shell(fmt.Sprint("c", j), sleeper))
		}
	}
	b.Run("containers", func(b *testing.B) {
		defer reportCPU(b)()
		for b.Loop() {
			resp, err := n.rt.ListContainerStats(n.ctx, &cri.ListContainerStatsRequest{})
			if err != nil || len(resp.GetStats()) != 100 {
				b.Fatalf("%d, %v", len(resp.GetStats()), err)
			}
		}
	})
	b.Run("sandboxes", func(b *testing.B) {
		defer reportCPU(b)()
		for b.Loop() {
			resp, err := n.rt.ListPodSandboxStats(n.ctx, &cri.ListPodSandboxStatsRequest{})
			if err != nil || len(resp.GetStats()) != 20 {
				b.Fatalf("%d, %v", len(resp.GetStats()), err)
			}
		}
	})
}

// reportCPU reports the processor time of server and client: on a busy machine it says more than the clock.
func reportCPU(b *testing.B) func() {
	spent := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	begin := spent()
	return func() { b.ReportMetric(float64((spent()-begin).Microseconds())/1000/float64(b.N), "cpu-ms/op") }
}
