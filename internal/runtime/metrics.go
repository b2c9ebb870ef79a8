package runtime

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/runtime/stats"
)

// ListMetricDescriptors describes the metrics, always the same.
func (s *Server) ListMetricDescriptors(context.Context, *cri.ListMetricDescriptorsRequest) (*cri.ListMetricDescriptorsResponse, error) {
	return &cri.ListMetricDescriptorsResponse{Descriptors: stats.Descriptors()}, nil
}

// ListPodSandboxMetrics tells the metrics of the ready sandboxes and of their running containers.
func (s *Server) ListPodSandboxMetrics(ctx context.Context, _ *cri.ListPodSandboxMetricsRequest) (*cri.ListPodSandboxMetricsResponse, error) {
	all := slices.Collect(s.measures.sandboxesMetrics(ctx))
	return &cri.ListPodSandboxMetricsResponse{PodMetrics: all}, ctx.Err()
}

// StreamPodSandboxMetrics is ListPodSandboxMetrics in several messages.
func (s *Server) StreamPodSandboxMetrics(_ *cri.StreamPodSandboxMetricsRequest, stream grpc.ServerStreamingServer[cri.StreamPodSandboxMetricsResponse]) error {
	return inChunks(stream.Context(), s.measures.sandboxesMetrics(stream.Context()), func(chunk []*cri.PodSandboxMetrics) error {
		return stream.Send(&cri.StreamPodSandboxMetricsResponse{PodSandboxMetrics: chunk})
	})
}

// executorPatience bounds how long what is only told as well waits for the executor.
const executorPatience = time.Second
