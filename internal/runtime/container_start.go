package runtime

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StartContainer lets a created container's program run.
func (s *Server) StartContainer(ctx context.Context, req *cri.StartContainerRequest) (*cri.StartContainerResponse, error) {
	id, err := s.containerID(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if err := s.life.Start(ctx, id); err != nil {
		return nil, err
	}
	return &cri.StartContainerResponse{}, nil
}
