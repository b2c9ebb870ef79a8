//go:build kubelet

package kubelet

import (
	"fmt"
	"strings"

	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"monopod.dev/monopod/test/harness"
)

func podStats(s *stats.Summary, pod string) *stats.PodStats {
	for i := range s.Pods {
		if s.Pods[i].PodRef.Name == pod+"-"+nodeName {
			return &s.Pods[i]
		}
	}
	return nil
}

func containerStats(p *stats.PodStats, name string) *stats.ContainerStats {
	for i := range p.Containers {
		if p.Containers[i].Name == name {
			return &p.Containers[i]
		}
	}
	return nil
}

func more(v *uint64, than uint64) bool { return v != nil && *v > than }

// figures: what the kubelet tells of a pod's consumption, in its three forms.
func figures(n *node, fromCRI bool) {
	harness.Eventually(n, "/stats/summary tells of full/main", func() (bool, string) {
		s, err := n.api.summary()
		if err != nil {
			return false, err.Error()
		}
		p := podStats(s, "full")
		if p == nil || p.CPU == nil || p.Memory == nil {
			return false, fmt.Sprintf("pod: %+v", p)
		}
		c := containerStats(p, "main")
		if c == nil || c.CPU == nil || c.Memory == nil || c.Rootfs == nil || c.Logs == nil {
			return false, fmt.Sprintf("container: %+v", c)
		}
		ok := more(c.CPU.UsageCoreNanoSeconds, 0) && c.CPU.UsageNanoCores != nil && more(c.Memory.WorkingSetBytes, 0) && more(c.Logs.UsedBytes, 0) &&
			c.Rootfs.UsedBytes != nil && more(p.CPU.UsageCoreNanoSeconds, 0) && more(p.Memory.WorkingSetBytes, 0) && len(p.VolumeStats) > 0 &&
			more(s.Node.Runtime.ImageFs.UsedBytes, 0)
		if fromCRI {
			ok = ok && p.Network != nil && more(p.Network.RxBytes, 0) && p.ProcessStats != nil && more(p.ProcessStats.ProcessCount, 0)
		}
		return ok, fmt.Sprintf("container: cpu %+v, memory %+v, rootfs %+v, logs %+v; pod: cpu %+v, memory %+v, network %+v, processes %+v, volumes %d",
			c.CPU, c.Memory, c.Rootfs, c.Logs, p.CPU, p.Memory, p.Network, p.ProcessStats, len(p.VolumeStats))
	})
	metrics := func(path string, want ...string) {
		harness.Eventually(n, path, func() (bool, string) {
			raw, err := n.api.get(path, nil)
			if err != nil {
				return false, err.Error()
			}
			for _, w := range want {
				if !strings.Contains(string(raw), w) {
					return false, "no " + w
				}
			}
			return true, ""
		})
	}
	metrics("/metrics/resource", `container_cpu_usage_seconds_total{container="main",namespace="default",pod="full-node"}`,
		`container_memory_working_set_bytes{container="main",namespace="default",pod="full-node"}`, `pod_cpu_usage_seconds_total{namespace="default",pod="full-node"}`)
	if raw, err := n.api.get("/metrics/cadvisor", nil); err != nil || !fromCRI {
		n.Logf("/metrics/cadvisor names pods: %v, %v", strings.Contains(string(raw), `pod="full-node"`), err)
	}
	if fromCRI {
		metrics("/metrics/cadvisor", `container="main"`, "container_cpu_usage_seconds_total{", "container_memory_working_set_bytes{", "container_network_receive_bytes_total{", `pod="full-node"`)
	}
}
