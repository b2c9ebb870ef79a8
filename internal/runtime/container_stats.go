package runtime

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
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
	ct := s.measures.measured(&rec, &sb)
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
	all := slices.Collect(s.measures.containersStats(ctx, req.GetFilter()))
	return &cri.ListContainerStatsResponse{Stats: all}, ctx.Err()
}

// StreamContainerStats is ListContainerStats in several messages.
func (s *Server) StreamContainerStats(req *cri.StreamContainerStatsRequest, stream grpc.ServerStreamingServer[cri.StreamContainerStatsResponse]) error {
	return inChunks(stream.Context(), s.measures.containersStats(stream.Context(), req.GetFilter()), func(chunk []*cri.ContainerStats) error {
		return stream.Send(&cri.StreamContainerStatsResponse{ContainerStats: chunk})
	})
}
