package agent

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/agent/eviction"
	"monopod.dev/monopod/internal/agent/metrics"
	"monopod.dev/monopod/internal/agent/podstats"
)

// metrics are the agent's own.
func (a *Agent) metrics(ctx context.Context, l *leaves, stats *podstats.Collector) *metrics.Agent {
	return metrics.NewAgent(metrics.AgentConfig{
		NodeName: a.cfg.NodeName, Version: kubeletVersion(a.cfg.Version), Operations: l.operations,
		Desired: func() int { return len(l.source.Pods()) },
		Running: func() (int, map[string]int, bool) {
			s, err := stats.Snapshot(ctx)
			if err != nil {
				return 0, nil, false
			}
			return s.Sandboxes, s.Containers, true
		},
		Claims: stats.Claims,
	})
}

// diskOf measures what a pod takes of the disk, as far as it is limited.
func diskOf(stats *podstats.Collector) func(ctx context.Context, pod *v1.Pod, limits eviction.Limits) (*eviction.Used, error) {
	return func(ctx context.Context, pod *v1.Pod, limits eviction.Limits) (*eviction.Used, error) {
		files, err := stats.Files(ctx, pod)
		if err != nil {
			return nil, err
		}
		used := &eviction.Used{Volumes: map[string]uint64{}, Containers: map[string]uint64{}, Other: files.Other.Bytes}
		for _, v := range files.Volumes {
			if !v.Apart {
				used.Volumes[v.Name] = v.Bytes
			}
		}
		for name, logs := range files.Logs {
			used.Containers[name] = logs.Bytes
		}
		if !limits.Containers {
			return used, nil
		}
		layers, err := stats.Layers(ctx, pod.UID)
		for name, size := range layers {
			used.Containers[name] += size
		}
		return used, err
	}
}
