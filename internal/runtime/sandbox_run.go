package runtime

import (
	"cmp"
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/ocispec"
	"monopod.dev/monopod/internal/runtime/sandbox"
)

// RunPodSandbox makes a sandbox that is ready on success. A retry joins the first attempt.
func (s *Server) RunPodSandbox(ctx context.Context, req *cri.RunPodSandboxRequest) (*cri.RunPodSandboxResponse, error) {
	cfg := req.GetConfig()
	if cfg.GetMetadata().GetName() == "" || cfg.GetMetadata().GetNamespace() == "" || cfg.GetMetadata().GetUid() == "" {
		return nil, fmt.Errorf("config.metadata: name, namespace and uid are needed, they make the sandbox unique; got %v: %w",
			cfg.GetMetadata(), errdefs.ErrInvalidArgument)
	}
	if err := s.checkHandler("runtime_handler", req.GetRuntimeHandler()); err != nil {
		return nil, err
	}
	handler := sandbox.Handler{Name: cmp.Or(req.GetRuntimeHandler(), nativeHandler), ByDefault: req.GetRuntimeHandler() == ""}
	if err := ocispec.ValidateSandbox(cfg, s.host.For(handler.Name)); err != nil {
		return nil, err
	}
	if err := sandbox.Validate(cfg); err != nil {
		return nil, err
	}
	id, err := s.sandboxLife.Run(ctx, cfg, handler)
	if err != nil {
		return nil, err
	}
	return &cri.RunPodSandboxResponse{PodSandboxId: string(id)}, nil
}
