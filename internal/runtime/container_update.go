package runtime

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// UpdateContainerResources changes what a container is limited to while it runs, all or nothing. What the request leaves out stays
// as it is. Its annotations are for experiments of client and runtime with each other; there are none, and they change nothing.
func (s *Server) UpdateContainerResources(ctx context.Context, req *cri.UpdateContainerResourcesRequest) (*cri.UpdateContainerResourcesResponse, error) {
	switch {
	case req.GetWindows() != nil:
		return nil, fmt.Errorf("windows: this is a Linux host: %w", errdefs.ErrInvalidArgument)
	case req.GetLinux() == nil:
		return nil, fmt.Errorf("linux: missing, there is nothing to update: %w", errdefs.ErrInvalidArgument)
	}
	id, err := s.containerID(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if err := s.life.Update(ctx, id, req.GetLinux()); err != nil {
		return nil, err
	}
	return &cri.UpdateContainerResourcesResponse{}, nil
}
