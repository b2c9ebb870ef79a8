package runtime

import (
	"context"
	"iter"
	"log/slog"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/ns"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/runtime/container"
	"monopod.dev/monopod/internal/runtime/container/life"
	"monopod.dev/monopod/internal/runtime/sandbox"
	"monopod.dev/monopod/internal/runtime/stats"
)

// measures are what sandboxes and containers use, as the calls for statistics and for metrics tell it.
type measures struct {
	*rooms
	stats    *stats.Collector
	executor life.Executor
	log      *slog.Logger
}

// containersStats looks the containers up at once, and reads their stats some at a time, until ctx ends.
func (m *measures) containersStats(ctx context.Context, f *cri.ContainerStatsFilter) iter.Seq[*cri.ContainerStats] {
	running := &cri.ContainerFilter{Id: f.GetId(), PodSandboxId: f.GetPodSandboxId(), LabelSelector: f.GetLabelSelector(),
		State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}}
	var all []stats.Container
	for _, rec := range m.containers.Select(running) {
		if sb, err := m.sandboxes.Get(rec.SandboxID); err == nil {
			all = append(all, m.measured(&rec, &sb))
		}
	}
	return sideBySide(ctx, all, func(ct *stats.Container) *cri.ContainerStats { return m.stats.Container(*ct) })
}

// measured is what the stats of a container are made of.
func (m *measures) measured(rec *container.Record, sb *sandbox.Record) stats.Container {
	cfg := rec.Config()
	ct := stats.Container{
		Attributes: &cri.ContainerAttributes{Id: string(rec.ID), Metadata: cfg.GetMetadata(), Labels: cfg.GetLabels(), Annotations: cfg.GetAnnotations()},
		Layer:      m.folders.Written(rec.ID), StartedAt: rec.StartedAt, Image: cfg.GetImage().GetImage(),
	}
	if rec.State() == cri.ContainerState_CONTAINER_RUNNING {
		ct.Cgroup = sb.CgroupOf(rec.ID)
	}
	return ct
}

func (m *measures) sandboxesStats(ctx context.Context, f *cri.PodSandboxStatsFilter) iter.Seq[*cri.PodSandboxStats] {
	return m.readSandboxes(ctx, m.measuredSandboxes(&cri.PodSandboxFilter{Id: f.GetId(), LabelSelector: f.GetLabelSelector(),
		State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY}}))
}

// readSandboxes reads the network's counters of all at once, and the rest some at a time, until ctx ends.
func (m *measures) readSandboxes(ctx context.Context, all []stats.Sandbox) iter.Seq[*cri.PodSandboxStats] {
	interfaces, at := m.stats.Interfaces(ctx, all)
	return sideBySide(ctx, all, func(sb *stats.Sandbox) *cri.PodSandboxStats {
		return m.stats.Sandbox(*sb, interfaces[ids.SandboxID(sb.Attributes.GetId())], at)
	})
}

// measuredSandboxes are what the stats of the sandboxes are made of that a filter lets through.
func (m *measures) measuredSandboxes(f *cri.PodSandboxFilter) []stats.Sandbox {
	var all []stats.Sandbox
	for _, rec := range m.sandboxes.Select(f) {
		cfg := rec.Config()
		sb := stats.Sandbox{Attributes: &cri.PodSandboxAttributes{Id: string(rec.ID), Metadata: cfg.GetMetadata(), Labels: cfg.GetLabels(), Annotations: cfg.GetAnnotations()}}
		if rec.Ready() {
			sb.Cgroup, sb.Shared, sb.NetNS = rec.Cgroup, m.sandboxes.Shared(rec.Cgroup), m.sandboxFolders.Namespace(&rec, ns.Network)
		}
		for _, ct := range m.containers.InSandbox(rec.ID) {
			if ct.State() == cri.ContainerState_CONTAINER_RUNNING {
				sb.Containers = append(sb.Containers, m.measured(&ct, &rec))
			}
		}
		all = append(all, sb)
	}
	return all
}

func (m *measures) sandboxesMetrics(ctx context.Context) iter.Seq[*cri.PodSandboxMetrics] {
	all := m.measuredSandboxes(&cri.PodSandboxFilter{State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY}})
	pids := m.pids(ctx)
	for i := range all {
		for k := range all[i].Containers {
			ct := &all[i].Containers[k]
			ct.PID = pids[ids.ContainerID(ct.Attributes.GetId())]
		}
	}
	return m.stats.Metrics(ctx, all)
}

// pids maps containers to their first processes. Without an executor that answers there is none.
func (m *measures) pids(ctx context.Context) map[ids.ContainerID]int {
	ctx, cancel := context.WithTimeout(ctx, executorPatience)
	defer cancel()
	states, err := m.executor.List(ctx)
	if err != nil {
		m.log.Warn("the executor does not tell the containers' processes; what is asked of them is left out", "error", err)
	}
	pids := make(map[ids.ContainerID]int, len(states))
	for _, st := range states {
		pids[st.ID] = st.PID
	}
	return pids
}
