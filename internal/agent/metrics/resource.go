package metrics

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Resource writes /metrics/resource, which metrics-server reads. s is nil when there was an error, which is all that is told then.
func Resource(s *stats.Summary) []byte {
	t := newText()
	ofContainer, ofPod := []string{"container", "namespace", "pod"}, []string{"namespace", "pod"}
	for _, f := range []struct {
		name, help string
		kind       kind
		keys       []string
	}{
		{"node_cpu_usage_seconds_total", "Processor time that the node has used, in core-seconds", counter, nil},
		{"node_memory_working_set_bytes", "Working set of the node, in bytes", gauge, nil},
		{"node_swap_usage_bytes", "Swap that the node uses, in bytes", gauge, nil},
		{"container_cpu_usage_seconds_total", "Processor time that the container has used, in core-seconds", counter, ofContainer},
		{"container_memory_working_set_bytes", "Working set of the container, in bytes", gauge, ofContainer},
		{"container_swap_usage_bytes", "Swap that the container uses, in bytes", gauge, ofContainer},
		{"container_swap_limit_bytes", "Swap that the container may use, in bytes", gauge, ofContainer},
		{"container_start_time_seconds", "Start of the container, in seconds since 1970", gauge, ofContainer},
		{"pod_cpu_usage_seconds_total", "Processor time that the pod has used, in core-seconds", counter, ofPod},
		{"pod_memory_working_set_bytes", "Working set of the pod, in bytes", gauge, ofPod},
		{"pod_swap_usage_bytes", "Swap that the pod uses, in bytes", gauge, ofPod},
		{"scrape_error", "(Deprecated since 1.29.0) 1 if the containers' metrics could not be had, else 0", gauge, nil},
		{"resource_scrape_error", "1 if the containers' metrics could not be had, else 0", gauge, nil},
	} {
		t.describe(f.name, f.kind, f.help, f.keys...)
	}
	failed := 1.0
	if s != nil {
		failed = 0
		t.used("node_", s.Node.CPU, s.Node.Memory, s.Node.Swap)
		for _, p := range s.Pods {
			namespace, pod := p.PodRef.Namespace, p.PodRef.Name
			for _, ct := range p.Containers {
				if ct.StartTime.Unix() > 0 {
					t.add("container_start_time_seconds", time.Time{}, sinceEpoch(ct.StartTime.Time), ct.Name, namespace, pod)
				}
				t.used("container_", ct.CPU, ct.Memory, ct.Swap, ct.Name, namespace, pod)
				if ct.Swap != nil && ct.Swap.SwapAvailableBytes != nil {
					t.bytesOf("container_swap_limit_bytes", ct.Swap.Time, limit(ct.Swap), ct.Name, namespace, pod)
				}
			}
			t.used("pod_", p.CPU, p.Memory, p.Swap, namespace, pod)
		}
	}
	t.add("scrape_error", time.Time{}, failed)
	t.add("resource_scrape_error", time.Time{}, failed)
	return t.bytes()
}

// used adds what the node, a pod or a container uses. What is not known is not there.
func (t *text) used(prefix string, cpu *stats.CPUStats, memory *stats.MemoryStats, swap *stats.SwapStats, labels ...string) {
	if cpu != nil && cpu.UsageCoreNanoSeconds != nil {
		t.add(prefix+"cpu_usage_seconds_total", cpu.Time.Time, seconds(*cpu.UsageCoreNanoSeconds), labels...)
	}
	if memory != nil {
		t.bytesOf(prefix+"memory_working_set_bytes", memory.Time, memory.WorkingSetBytes, labels...)
	}
	if swap != nil {
		t.bytesOf(prefix+"swap_usage_bytes", swap.Time, swap.SwapUsageBytes, labels...)
	}
}

// bytesOf adds a number that may not be known.
func (t *text) bytesOf(name string, at metav1.Time, n *uint64, labels ...string) {
	if n != nil {
		t.add(name, at.Time, float64(*n), labels...)
	}
}

// limit is the swap that may be used: what is, and what is left.
func limit(s *stats.SwapStats) *uint64 {
	n := *s.SwapAvailableBytes
	if s.SwapUsageBytes != nil {
		n += *s.SwapUsageBytes
	}
	return &n
}
