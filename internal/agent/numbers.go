package agent

import (
	"context"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/eviction"
	"monopod.dev/monopod/internal/agent/metrics"
	"monopod.dev/monopod/internal/agent/podstats"
	"monopod.dev/monopod/internal/host/cgroup/place"
)

// numbers are what the agent tells of what is used, and of itself.
type numbers struct {
	agent   *Agent
	metrics *metrics.Agent
	// What follows is there once connect was called.
	stats  *podstats.Collector
	roster *roster
	ctx    context.Context
}

// numbers makes the agent's own metrics, which the client of the runtime counts in.
func (a *Agent) numbers() *numbers {
	n := &numbers{agent: a}
	n.metrics = metrics.NewAgent(metrics.AgentConfig{
		NodeName: a.cfg.NodeName, Version: kubeletVersion(a.cfg.Version),
		Desired: func() int { return len(n.roster.Pods()) },
		Running: func() (int, map[string]int, bool) {
			s, err := n.stats.Snapshot(n.ctx)
			if err != nil {
				return 0, nil, false
			}
			return s.Sandboxes, s.Containers, true
		},
	})
	return n
}

// connect is called before anybody asks.
func (n *numbers) connect(ctx context.Context, client *cri.Client, r *roster) {
	cfg := n.agent.cfg
	n.ctx, n.roster = ctx, r
	n.stats = podstats.New(ctx, podstats.Config{
		NodeName: cfg.NodeName, Runtime: client, Images: client.Images,
		PodsDir: filepath.Join(cfg.DataDir, "pods"), LogsDir: cfg.PodLogsDir, DiskDir: cfg.DataDir,
		PodsCgroup: func() (string, error) {
			return place.Path(place.Pods{Root: cfg.CgroupRoot, Driver: client.Identity().CgroupDriver}.All())
		}, Log: n.agent.log,
	})
}

// disk is what a pod takes of it, as far as it is limited.
func (n *numbers) disk(ctx context.Context, pod *v1.Pod, limits eviction.Limits) (*eviction.Used, error) {
	files, err := n.stats.Files(ctx, pod)
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
	layers, err := n.stats.Layers(ctx, pod.UID)
	for name, size := range layers {
		used.Containers[name] += size
	}
	return used, err
}
