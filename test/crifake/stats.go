package crifake

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// usageNow is what each container has used: a tenth of a processor since it was started, and round numbers of all else. A sandbox has what its containers have, and as
// much again.
func (c *container) usageNow(now time.Time, times uint64) (*cri.CpuUsage, *cri.MemoryUsage) {
	n := func(n uint64) *cri.UInt64Value { return &cri.UInt64Value{Value: n * times} }
	at := now.UnixNano()
	return &cri.CpuUsage{Timestamp: at, UsageCoreNanoSeconds: n(uint64(at-c.status.StartedAt) / 10)},
		&cri.MemoryUsage{Timestamp: at, UsageBytes: n(3 << 20), WorkingSetBytes: n(2 << 20), RssBytes: n(1 << 20), PageFaults: n(7), MajorPageFaults: n(1)}
}

// running are the stats of a sandbox's running containers. r.mu is held.
func (r *Runtime) running(sandbox string, now time.Time) (all []*cri.ContainerStats) {
	for _, c := range r.containers {
		if c.status.State != cri.ContainerState_CONTAINER_RUNNING || sandbox != "" && c.sandbox != sandbox {
			continue
		}
		st := &cri.ContainerStats{
			Attributes:    &cri.ContainerAttributes{Id: c.status.Id, Metadata: c.status.Metadata, Labels: c.status.Labels},
			WritableLayer: &cri.FilesystemUsage{Timestamp: now.UnixNano(), UsedBytes: &cri.UInt64Value{Value: 4096}, InodesUsed: &cri.UInt64Value{Value: 1}},
			Swap:          &cri.SwapUsage{Timestamp: now.UnixNano(), SwapUsageBytes: &cri.UInt64Value{}, SwapAvailableBytes: &cri.UInt64Value{Value: 1 << 20}},
		}
		st.Cpu, st.Memory = c.usageNow(now, 1)
		all = append(all, st)
	}
	return all
}

// ListPodSandboxStats implements CRI.
func (r *Runtime) ListPodSandboxStats(context.Context, *cri.ListPodSandboxStatsRequest) (*cri.ListPodSandboxStatsResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.failures["ListPodSandboxStats"]; err != nil {
		return nil, err
	}
	now := time.Now()
	n := func(n uint64) *cri.UInt64Value { return &cri.UInt64Value{Value: n} }
	resp := &cri.ListPodSandboxStatsResponse{}
	for _, s := range r.sandboxes {
		if s.State != cri.PodSandboxState_SANDBOX_READY {
			continue
		}
		l := &cri.LinuxPodSandboxStats{
			Containers: r.running(s.Id, now), Process: &cri.ProcessUsage{ProcessCount: n(5)},
			Network: &cri.NetworkUsage{Timestamp: now.UnixNano(), DefaultInterface: &cri.NetworkInterfaceUsage{Name: "eth0", RxBytes: n(11), RxErrors: n(0), TxBytes: n(22), TxErrors: n(0)}},
		}
		for _, c := range r.containers {
			if c.sandbox == s.Id && c.status.State == cri.ContainerState_CONTAINER_RUNNING {
				l.Cpu, l.Memory = c.usageNow(now, 2)
			}
		}
		resp.Stats = append(resp.Stats, &cri.PodSandboxStats{Attributes: &cri.PodSandboxAttributes{Id: s.Id, Metadata: s.Metadata, Labels: s.Labels}, Linux: l})
	}
	return resp, nil
}

// ListContainerStats implements CRI.
func (r *Runtime) ListContainerStats(context.Context, *cri.ListContainerStatsRequest) (*cri.ListContainerStatsResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &cri.ListContainerStatsResponse{Stats: r.running("", time.Now())}, r.failures["ListContainerStats"]
}

// HasMetrics makes the runtime tell one metric of each container, as newer runtimes do.
func (r *Runtime) HasMetrics(has bool) { r.locked(func() { r.metrics = has }) }

var metricKeys = []string{"container", "id", "image", "name", "namespace", "pod", "cpu"}

// ListMetricDescriptors implements CRI.
func (r *Runtime) ListMetricDescriptors(context.Context, *cri.ListMetricDescriptorsRequest) (*cri.ListMetricDescriptorsResponse, error) {
	return &cri.ListMetricDescriptorsResponse{Descriptors: []*cri.MetricDescriptor{
		{Name: "container_cpu_usage_seconds_total", Help: "CPU time", LabelKeys: metricKeys},
		{Name: "container_threads", Help: "Threads", LabelKeys: metricKeys[:6]},
	}}, nil
}

// ListPodSandboxMetrics implements CRI. The time of a processor is told in whole seconds.
func (r *Runtime) ListPodSandboxMetrics(context.Context, *cri.ListPodSandboxMetricsRequest) (*cri.ListPodSandboxMetricsResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.metrics {
		return nil, status.Error(codes.Unimplemented, "no metrics")
	}
	resp := &cri.ListPodSandboxMetricsResponse{}
	for _, c := range r.containers {
		pod := r.sandboxes[c.sandbox].GetMetadata()
		labels := []string{c.status.Metadata.Name, "/pods/" + c.status.Id, c.status.Image.GetImage(), c.status.Id, pod.GetNamespace(), pod.GetName()}
		resp.PodMetrics = append(resp.PodMetrics, &cri.PodSandboxMetrics{PodSandboxId: c.sandbox, ContainerMetrics: []*cri.ContainerMetrics{{
			ContainerId: c.status.Id, Metrics: []*cri.Metric{
				{Name: "container_cpu_usage_seconds_total", MetricType: cri.MetricType_COUNTER, LabelValues: append(labels, "total"), Value: &cri.UInt64Value{}},
				{Name: "container_threads", MetricType: cri.MetricType_GAUGE, LabelValues: labels, Value: &cri.UInt64Value{Value: 3}},
			},
		}}})
	}
	return resp, nil
}
