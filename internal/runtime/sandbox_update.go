package runtime

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// UpdatePodSandboxResources takes in what a pod's cgroup is limited to: its overhead and the sum of its containers. A cgroup that
// the client has made, as kubelets do, is the client's to limit: then this is only kept.
func (s *Server) UpdatePodSandboxResources(ctx context.Context, req *cri.UpdatePodSandboxResourcesRequest) (*cri.UpdatePodSandboxResourcesResponse, error) {
	if req.GetOverhead() == nil && req.GetResources() == nil {
		return nil, fmt.Errorf("overhead, resources: both are missing, there is nothing to update: %w", errdefs.ErrInvalidArgument)
	}
	id, err := s.sandboxID(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if err := s.sandboxLife.Update(ctx, id, req.GetOverhead(), req.GetResources()); err != nil {
		return nil, err
	}
	return &cri.UpdatePodSandboxResourcesResponse{}, nil
}
