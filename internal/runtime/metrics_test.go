package runtime_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// metricNames are the metrics that a kubelet's users know from it, and that the upstream validation suite asks for.
var metricNames = strings.Fields(`container_blkio_device_usage_total container_cpu_cfs_periods_total container_cpu_cfs_throttled_periods_total
	container_cpu_cfs_throttled_seconds_total container_cpu_system_seconds_total container_cpu_usage_seconds_total container_cpu_user_seconds_total
	container_file_descriptors container_fs_inodes_free container_fs_inodes_total container_fs_limit_bytes container_fs_reads_bytes_total
	container_fs_reads_total container_fs_usage_bytes container_fs_writes_bytes_total container_fs_writes_total container_hugetlb_max_usage_bytes
	container_hugetlb_usage_bytes container_last_seen container_memory_cache container_memory_failcnt container_memory_failures_total
	container_memory_kernel_usage container_memory_mapped_file container_memory_max_usage_bytes container_memory_rss container_memory_swap
	container_memory_usage_bytes container_memory_working_set_bytes container_network_receive_bytes_total container_network_receive_errors_total
	container_network_receive_packets_dropped_total container_network_receive_packets_total container_network_transmit_bytes_total
	container_network_transmit_errors_total container_network_transmit_packets_dropped_total container_network_transmit_packets_total
	container_oom_events_total container_pressure_cpu_stalled_seconds_total container_pressure_cpu_waiting_seconds_total
	container_pressure_io_stalled_seconds_total container_pressure_io_waiting_seconds_total container_pressure_memory_stalled_seconds_total
	container_pressure_memory_waiting_seconds_total container_processes container_sockets container_spec_cpu_period container_spec_cpu_quota
	container_spec_cpu_shares container_spec_memory_limit_bytes container_spec_memory_reservation_limit_bytes container_spec_memory_swap_limit_bytes
	container_start_time_seconds container_threads container_threads_max container_ulimits_soft`)

// maybeMissing are those that depend on the host: its devices, huge pages, and its kernel's PSI.
var maybeMissing = []string{"container_blkio_", "container_fs_reads_", "container_fs_writes_", "container_hugetlb_", "container_pressure_"}

// TestMetrics holds every metric of a container that works against its descriptor.
func TestMetrics(t *testing.T) {
	n := newNode(t)
	began := time.Now()
	sb := n.run("pod")
	cfg := shell("worker", "exec 3</dev/null; trap 'exit 0' TERM; head -c 1048576 /dev/zero >/file; sleep 3600 & echo done >/ready; wait")
	cfg.Linux.Resources = &cri.LinuxContainerResources{CpuPeriod: 100000, CpuQuota: 50000, CpuShares: 512, MemoryLimitInBytes: 64 * mib, MemorySwapLimitInBytes: 64 * mib}
	id := n.launch(sb, cfg)
	n.eventually("the container's work", func() bool {
		_, err := os.Stat(n.dir + "/data/containers/" + id + "/upper/ready")
		return err == nil
	})
	n.eventually("a measurement of the layer", func() bool { return n.containerStats(id).GetWritableLayer() != nil })

	described, err := n.rt.ListMetricDescriptors(n.ctx, &cri.ListMetricDescriptorsRequest{})
	n.check(err)
	again, err := n.rt.ListMetricDescriptors(n.ctx, &cri.ListMetricDescriptorsRequest{})
	n.check(err)
	if !proto.Equal(described, again) {
		t.Error("the descriptors change")
	}
	keys := map[string][]string{}
	for _, d := range described.GetDescriptors() {
		if keys[d.GetName()] != nil || d.GetHelp() == "" {
			t.Errorf("descriptor %v: twice, or without help", d)
		}
		keys[d.GetName()] = d.GetLabelKeys()
	}
	for _, name := range metricNames {
		if keys[name] == nil {
			t.Errorf("%s is not described", name)
		}
	}

	resp, err := n.rt.ListPodSandboxMetrics(n.ctx, &cri.ListPodSandboxMetricsRequest{})
	n.check(err)
	if len(resp.GetPodMetrics()) != 1 || resp.GetPodMetrics()[0].GetPodSandboxId() != sb {
		t.Fatalf("metrics %v", resp)
	}
	pod := resp.GetPodMetrics()[0]
	if len(pod.GetContainerMetrics()) != 1 || pod.GetContainerMetrics()[0].GetContainerId() != id {
		t.Fatalf("metrics of containers %v", pod.GetContainerMetrics())
	}
	own := pod.GetContainerMetrics()[0].GetMetrics()
	values := map[string]uint64{} // by name and the values of its own labels
	seen := map[string]bool{}
	for _, m := range slices.Concat(pod.GetMetrics(), own) {
		k := keys[m.GetName()]
		if len(k) == 0 || len(k) != len(m.GetLabelValues()) {
			t.Errorf("%s has the labels %q for the keys %q", m.GetName(), m.GetLabelValues(), k)
			continue
		}
		unique := m.GetName() + "|" + strings.Join(m.GetLabelValues(), "|")
		if seen[unique] {
			t.Errorf("twice: %s", unique)
		}
		seen[unique] = true
		seen[m.GetName()] = true
		if kind := cri.MetricType_COUNTER; strings.HasSuffix(m.GetName(), "_total") != (m.GetMetricType() == kind) &&
			m.GetName() != "container_memory_failcnt" && m.GetName() != "container_fs_inodes_total" {
			t.Errorf("%s is a %v", m.GetName(), m.GetMetricType())
		}
		if at := m.GetTimestamp(); (at != 0) != (m.GetName() == "container_fs_usage_bytes") || at != 0 && (at < began.UnixNano() || at > time.Now().UnixNano()) {
			t.Errorf("%s has the time %d", m.GetName(), at)
		}
		base := []string{"", "pod", "default", sb}
		if slices.Contains(own, m) {
			base = []string{"worker", "pod", "default", id}
			values[m.GetName()+strings.Join(m.GetLabelValues()[6:], ",")] = m.GetValue().GetValue()
		}
		label := func(key string) string { return m.GetLabelValues()[slices.Index(k, key)] }
		if got := []string{label("container"), label("pod"), label("namespace"), label("name")}; !slices.Equal(got, base) || !strings.HasPrefix(label("id"), n.cgroupRoot) {
			t.Errorf("%s has the labels %q, want %q and a cgroup", m.GetName(), m.GetLabelValues(), base)
		}
	}
	for _, name := range metricNames {
		if !seen[name] && !slices.ContainsFunc(maybeMissing, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			t.Errorf("%s has no value", name)
		}
	}
	for name, want := range map[string][2]uint64{
		"container_spec_cpu_quota": {50000, 50000}, "container_spec_cpu_period": {100000, 100000}, "container_spec_cpu_shares": {500, 512},
		"container_spec_memory_limit_bytes": {64 * mib, 64 * mib}, "container_memory_usage_bytes": {10000, 64 * mib}, "container_processes": {2, 2},
		"container_threads": {2, 2}, "container_threads_max": {0, 0}, "container_sockets": {0, 0}, "container_file_descriptors": {7, 10},
		"container_ulimits_softmax_open_files": {100, 1 << 31}, "container_oom_events_total": {0, 0}, "container_cpu_usage_seconds_totaltotal": {0, 60},
		"container_memory_failures_totalpgfault,container": {10, 1e6}, "container_last_seen": {uint64(began.Unix()), uint64(time.Now().Unix())},
		"container_start_time_seconds": {uint64(began.Unix()), uint64(time.Now().Unix())}, "container_spec_memory_swap_limit_bytes": {0, 0},
	} {
		if got, ok := values[name]; !ok || got < want[0] || got > want[1] {
			t.Errorf("%s is %d (%v), want %d to %d", name, got, ok, want[0], want[1])
		}
	}

	stream, err := n.rt.StreamPodSandboxMetrics(n.ctx, &cri.StreamPodSandboxMetricsRequest{})
	streamed := drain(t, stream, err)
	if len(streamed) != 1 || len(streamed[0].GetPodSandboxMetrics()) != 1 || streamed[0].GetPodSandboxMetrics()[0].GetPodSandboxId() != sb {
		t.Errorf("streamed are %v", streamed)
	}
	n.check(n.tryStop(id, 5))
	resp, err = n.rt.ListPodSandboxMetrics(n.ctx, &cri.ListPodSandboxMetricsRequest{})
	n.check(err)
	if len(resp.GetPodMetrics()) != 1 || len(resp.GetPodMetrics()[0].GetContainerMetrics()) != 0 {
		t.Errorf("a container that has ended has metrics: %v", resp)
	}
}
