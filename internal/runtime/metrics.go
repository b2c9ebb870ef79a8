package runtime

import (
	"context"
	"iter"
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
	all := slices.Collect(s.sandboxesMetrics(ctx))
	return &cri.ListPodSandboxMetricsResponse{PodMetrics: all}, ctx.Err()
}

// StreamPodSandboxMetrics is ListPodSandboxMetrics in several messages.
func (s *Server) StreamPodSandboxMetrics(_ *cri.StreamPodSandboxMetricsRequest, stream grpc.ServerStreamingServer[cri.StreamPodSandboxMetricsResponse]) error {
	return inChunks(stream.Context(), s.sandboxesMetrics(stream.Context()), func(chunk []*cri.PodSandboxMetrics) error {
		return stream.Send(&cri.StreamPodSandboxMetricsResponse{PodSandboxMetrics: chunk})
	})
}

func (s *Server) sandboxesMetrics(ctx context.Context) iter.Seq[*cri.PodSandboxMetrics] {
	all := s.measuredSandboxes(&cri.PodSandboxFilter{State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY}})
	pids := s.pids(ctx)
	for i := range all {
		for k := range all[i].Containers {
			ct := &all[i].Containers[k]
			ct.PID = pids[ct.Attributes.GetId()]
		}
	}
	return s.stats.Metrics(ctx, all)
}

// executorPatience bounds how long what is only told as well waits for the executor.
const executorPatience = time.Second

// pids maps containers to their first processes. Without an executor that answers there is none.
func (s *Server) pids(ctx context.Context) map[string]int {
	ctx, cancel := context.WithTimeout(ctx, executorPatience)
	defer cancel()
	states, err := s.cfg.Executor.List(ctx)
	if err != nil {
		s.cfg.Log.Warn("the executor does not tell the containers' processes; what is asked of them is left out", "error", err)
	}
	pids := make(map[string]int, len(states))
	for _, st := range states {
		pids[st.ID] = st.PID
	}
	return pids
}
