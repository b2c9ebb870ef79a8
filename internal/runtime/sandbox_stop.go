package runtime

import (
	"context"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StopPodSandbox ends what runs in the sandbox and gives its address back. One that is gone has nothing left to reclaim.
func (s *Server) StopPodSandbox(ctx context.Context, req *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	id, err := s.sandboxID(req.GetPodSandboxId())
	if err == nil {
		err = s.sandboxLife.Stop(ctx, id)
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return nil, err
	}
	return &cri.StopPodSandboxResponse{}, nil
}

// RemovePodSandbox removes the sandbox and its containers.
func (s *Server) RemovePodSandbox(ctx context.Context, req *cri.RemovePodSandboxRequest) (*cri.RemovePodSandboxResponse, error) {
	id, err := s.sandboxID(req.GetPodSandboxId())
	if err == nil {
		err = s.sandboxLife.Remove(ctx, id)
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return nil, err
	}
	return &cri.RemovePodSandboxResponse{}, nil
}
