package runtime

import (
	"context"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StopContainer asks a container to end, and kills it after the time-out. One that is gone, or has ended, is stopped.
func (s *Server) StopContainer(ctx context.Context, req *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	id, err := s.containerID(req.GetContainerId())
	if err == nil {
		err = s.ends.Stop(ctx, id, seconds(req.GetTimeout()))
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return nil, err
	}
	return &cri.StopContainerResponse{}, nil
}

// RemoveContainer removes a container, by force if it runs.
func (s *Server) RemoveContainer(ctx context.Context, req *cri.RemoveContainerRequest) (*cri.RemoveContainerResponse, error) {
	id, err := s.containerID(req.GetContainerId())
	if err == nil {
		err = s.ends.Remove(ctx, id)
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return nil, err
	}
	return &cri.RemoveContainerResponse{}, nil
}

// ReopenContainerLog makes the writer of a running container's log open a new file.
func (s *Server) ReopenContainerLog(ctx context.Context, req *cri.ReopenContainerLogRequest) (*cri.ReopenContainerLogResponse, error) {
	id, err := s.containerID(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if err := s.life.ReopenLog(ctx, id); err != nil {
		return nil, err
	}
	return &cri.ReopenContainerLogResponse{}, nil
}
