package runtime

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/ns"
	"monopod.dev/monopod/internal/runtime/stats"
)

// PodSandboxStats tells what a sandbox and its running containers use. Of one that is not ready, that is nothing.
func (s *Server) PodSandboxStats(ctx context.Context, req *cri.PodSandboxStatsRequest) (*cri.PodSandboxStatsResponse, error) {
	id, err := s.sandboxID(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if _, err := s.sandboxes.Get(id); err != nil {
		return nil, err
	}
	all := s.measuredSandboxes(&cri.PodSandboxFilter{Id: id})
	for st := range s.readSandboxes(ctx, all) {
		return &cri.PodSandboxStatsResponse{Stats: st}, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("stats of sandbox %q, which is being removed: %w", id, errdefs.ErrNotFound)
}

// ListPodSandboxStats tells what the ready sandboxes use that the filter lets through.
func (s *Server) ListPodSandboxStats(ctx context.Context, req *cri.ListPodSandboxStatsRequest) (*cri.ListPodSandboxStatsResponse, error) {
	all := slices.Collect(s.sandboxesStats(ctx, req.GetFilter()))
	return &cri.ListPodSandboxStatsResponse{Stats: all}, ctx.Err()
}

// StreamPodSandboxStats is ListPodSandboxStats in several messages.
func (s *Server) StreamPodSandboxStats(req *cri.StreamPodSandboxStatsRequest, stream grpc.ServerStreamingServer[cri.StreamPodSandboxStatsResponse]) error {
	return inChunks(stream.Context(), s.sandboxesStats(stream.Context(), req.GetFilter()), func(chunk []*cri.PodSandboxStats) error {
		return stream.Send(&cri.StreamPodSandboxStatsResponse{PodSandboxStats: chunk})
	})
}

func (s *Server) sandboxesStats(ctx context.Context, f *cri.PodSandboxStatsFilter) iter.Seq[*cri.PodSandboxStats] {
	return s.readSandboxes(ctx, s.measuredSandboxes(&cri.PodSandboxFilter{Id: f.GetId(), LabelSelector: f.GetLabelSelector(),
		State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY}}))
}

// readSandboxes reads the network's counters of all at once, and the rest some at a time, until ctx ends.
func (s *Server) readSandboxes(ctx context.Context, all []stats.Sandbox) iter.Seq[*cri.PodSandboxStats] {
	interfaces, at := s.stats.Interfaces(ctx, all)
	return sideBySide(ctx, all, func(sb *stats.Sandbox) *cri.PodSandboxStats {
		return s.stats.Sandbox(*sb, interfaces[sb.Attributes.GetId()], at)
	})
}

// measuredSandboxes are what the stats of the sandboxes are made of that a filter lets through.
func (s *Server) measuredSandboxes(f *cri.PodSandboxFilter) []stats.Sandbox {
	var all []stats.Sandbox
	for _, rec := range s.sandboxes.Select(f) {
		cfg := rec.Config()
		sb := stats.Sandbox{Attributes: &cri.PodSandboxAttributes{Id: rec.ID, Metadata: cfg.GetMetadata(), Labels: cfg.GetLabels(), Annotations: cfg.GetAnnotations()}}
		if rec.Ready() {
			sb.Cgroup, sb.Shared, sb.NetNS = rec.Cgroup, s.sandboxes.Shared(rec.Cgroup), s.sandboxes.Namespace(&rec, ns.Network)
		}
		for _, ct := range s.containers.InSandbox(rec.ID) {
			if ct.State() == cri.ContainerState_CONTAINER_RUNNING {
				sb.Containers = append(sb.Containers, s.measured(&ct, &rec))
			}
		}
		all = append(all, sb)
	}
	return all
}
