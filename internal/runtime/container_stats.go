package runtime

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/runtime/container"
	"monopod.dev/monopod/internal/runtime/sandbox"
	"monopod.dev/monopod/internal/runtime/stats"
)

// ContainerStats tells what a container uses. Of one that does not run, that is what it has written.
func (s *Server) ContainerStats(_ context.Context, req *cri.ContainerStatsRequest) (*cri.ContainerStatsResponse, error) {
	id, err := s.containerID(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	rec, err := s.containers.Get(id)
	if err != nil {
		return nil, err
	}
	sb, err := s.sandboxes.Get(rec.SandboxID)
	if err != nil {
		return nil, err
	}
	// It may end between the two looks at it.
	ct := s.measured(&rec, &sb)
	st := s.stats.Container(ct)
	if st == nil {
		ct.Cgroup = ""
		st = s.stats.Container(ct)
	}
	if _, err := s.containers.Get(id); err != nil {
		return nil, fmt.Errorf("stats of container %q, which is removed: %w", id, errdefs.ErrNotFound)
	}
	return &cri.ContainerStatsResponse{Stats: st}, nil
}

// ListContainerStats tells what the running containers use that the filter lets through.
func (s *Server) ListContainerStats(ctx context.Context, req *cri.ListContainerStatsRequest) (*cri.ListContainerStatsResponse, error) {
	all := slices.Collect(s.containersStats(ctx, req.GetFilter()))
	return &cri.ListContainerStatsResponse{Stats: all}, ctx.Err()
}

// StreamContainerStats is ListContainerStats in several messages.
func (s *Server) StreamContainerStats(req *cri.StreamContainerStatsRequest, stream grpc.ServerStreamingServer[cri.StreamContainerStatsResponse]) error {
	return inChunks(stream.Context(), s.containersStats(stream.Context(), req.GetFilter()), func(chunk []*cri.ContainerStats) error {
		return stream.Send(&cri.StreamContainerStatsResponse{ContainerStats: chunk})
	})
}

// containersStats looks the containers up at once, and reads their stats some at a time, until ctx ends.
func (s *Server) containersStats(ctx context.Context, f *cri.ContainerStatsFilter) iter.Seq[*cri.ContainerStats] {
	running := &cri.ContainerFilter{Id: f.GetId(), PodSandboxId: f.GetPodSandboxId(), LabelSelector: f.GetLabelSelector(),
		State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}}
	var all []stats.Container
	for _, rec := range s.containers.Select(running) {
		if sb, err := s.sandboxes.Get(rec.SandboxID); err == nil {
			all = append(all, s.measured(&rec, &sb))
		}
	}
	return sideBySide(ctx, all, func(ct *stats.Container) *cri.ContainerStats { return s.stats.Container(*ct) })
}

// measured is what the stats of a container are made of.
func (s *Server) measured(rec *container.Record, sb *sandbox.Record) stats.Container {
	cfg := rec.Config()
	ct := stats.Container{
		Attributes: &cri.ContainerAttributes{Id: rec.ID, Metadata: cfg.GetMetadata(), Labels: cfg.GetLabels(), Annotations: cfg.GetAnnotations()},
		Layer:      s.containers.Written(rec.ID), StartedAt: rec.StartedAt, Image: cfg.GetImage().GetImage(),
	}
	if rec.State() == cri.ContainerState_CONTAINER_RUNNING {
		ct.Cgroup = container.Cgroup(rec, sb)
	}
	return ct
}
