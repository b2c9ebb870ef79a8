package runtime

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
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
	all := s.measures.measuredSandboxes(&cri.PodSandboxFilter{Id: string(id)})
	for st := range s.measures.readSandboxes(ctx, all) {
		return &cri.PodSandboxStatsResponse{Stats: st}, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("stats of sandbox %q, which is being removed: %w", id, errdefs.ErrNotFound)
}

// ListPodSandboxStats tells what the ready sandboxes use that the filter lets through.
func (s *Server) ListPodSandboxStats(ctx context.Context, req *cri.ListPodSandboxStatsRequest) (*cri.ListPodSandboxStatsResponse, error) {
	all := slices.Collect(s.measures.sandboxesStats(ctx, req.GetFilter()))
	return &cri.ListPodSandboxStatsResponse{Stats: all}, ctx.Err()
}

// StreamPodSandboxStats is ListPodSandboxStats in several messages.
func (s *Server) StreamPodSandboxStats(req *cri.StreamPodSandboxStatsRequest, stream grpc.ServerStreamingServer[cri.StreamPodSandboxStatsResponse]) error {
	return inChunks(stream.Context(), s.measures.sandboxesStats(stream.Context(), req.GetFilter()), func(chunk []*cri.PodSandboxStats) error {
		return stream.Send(&cri.StreamPodSandboxStatsResponse{PodSandboxStats: chunk})
	})
}
