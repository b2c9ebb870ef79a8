package runtime

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CreateContainer makes a container in a sandbox. A retry joins the first attempt.
func (s *Server) CreateContainer(ctx context.Context, req *cri.CreateContainerRequest) (*cri.CreateContainerResponse, error) {
	cfg := req.GetConfig()
	if cfg.GetMetadata().GetName() == "" {
		return nil, fmt.Errorf("config.metadata.name is empty: %w", errdefs.ErrInvalidArgument)
	}
	if cfg.GetImage().GetImage() == "" {
		return nil, fmt.Errorf("config.image.image is empty: %w", errdefs.ErrInvalidArgument)
	}
	if err := s.checkHandler("config.image.runtime_handler", cfg.GetImage().GetRuntimeHandler()); err != nil {
		return nil, err
	}
	sandboxID, err := s.sandboxID(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	id, err := s.life.Create(ctx, sandboxID, cfg, req.GetSandboxConfig().GetLinux().GetSecurityContext().GetPrivileged())
	if err != nil {
		return nil, err
	}
	return &cri.CreateContainerResponse{ContainerId: string(id)}, nil
}
