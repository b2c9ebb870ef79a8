package crifake

import (
	"context"
	"path/filepath"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/devices/source"
)

// CreateContainer implements CRI: a name is unique by sandbox and attempt.
func (r *Runtime) CreateContainer(_ context.Context, req *cri.CreateContainerRequest) (*cri.CreateContainerResponse, error) {
	var creating func(*cri.ContainerConfig)
	r.locked(func() { creating = r.creating })
	cfg := req.Config
	if creating != nil {
		creating(cfg)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.begin("CreateContainer", cfg.Metadata.Name); err != nil {
		return nil, err
	}
	s := r.sandboxes[req.PodSandboxId]
	if s == nil || s.State != cri.PodSandboxState_SANDBOX_READY {
		return nil, status.Errorf(codes.NotFound, "sandbox %q is not ready", req.PodSandboxId)
	}
	for _, c := range r.containers {
		if c.sandbox == req.PodSandboxId && proto.Equal(c.status.Metadata, cfg.Metadata) {
			return nil, status.Errorf(codes.AlreadyExists, "container %v exists", cfg.Metadata)
		}
	}
	var devices []string
	if !r.ignoresCDI {
		for _, d := range cfg.CDIDevices {
			devices = append(devices, d.Name)
		}
	}
	if !r.ignoresAnnotations {
		devices = append(devices, source.AnnotatedCDI(cfg.Annotations)...)
	}
	for _, d := range devices {
		if !r.cdi[d] {
			return nil, status.Errorf(codes.Unknown, "CDI device injection failed: unresolvable CDI devices %s", d)
		}
	}
	id := r.id("c")
	r.configs[id] = cfg
	r.containers[id] = &container{sandbox: req.PodSandboxId, ended: make(chan struct{}), status: &cri.ContainerStatus{
		Id: id, Metadata: cfg.Metadata, State: cri.ContainerState_CONTAINER_CREATED, CreatedAt: time.Now().UnixNano(),
		Image: cfg.Image, ImageRef: "sha256:" + cfg.Image.Image, Labels: cfg.Labels, Annotations: cfg.Annotations, Mounts: cfg.Mounts,
		LogPath: filepath.Join(req.SandboxConfig.LogDirectory, cfg.LogPath),
	}}
	r.tell(id, cri.ContainerEventType_CONTAINER_CREATED_EVENT)
	return &cri.CreateContainerResponse{ContainerId: id}, nil
}

// StartContainer implements CRI.
func (r *Runtime) StartContainer(_ context.Context, req *cri.StartContainerRequest) (*cri.StartContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.begin("StartContainer", req.ContainerId); err != nil {
		return nil, err
	}
	c := r.containers[req.ContainerId]
	if c == nil {
		return nil, notFound("container", req.ContainerId)
	}
	if c.status.State != cri.ContainerState_CONTAINER_CREATED {
		return nil, status.Errorf(codes.FailedPrecondition, "container %s is %s", c.status.Id, c.status.State)
	}
	c.status.State, c.status.StartedAt = cri.ContainerState_CONTAINER_RUNNING, time.Now().UnixNano()
	r.tell(c.status.Id, cri.ContainerEventType_CONTAINER_STARTED_EVENT)
	return &cri.StartContainerResponse{}, nil
}

// StopContainer implements CRI: a container ends with 143 at once, or with 137 after the time-out when it is deaf.
func (r *Runtime) StopContainer(ctx context.Context, req *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	r.mu.Lock()
	err := r.begin("StopContainer", req.ContainerId)
	c := r.containers[req.ContainerId]
	if err == nil && c == nil {
		err = notFound("container", req.ContainerId)
	}
	if err != nil {
		r.mu.Unlock()
		return nil, err
	}
	if !r.deaf[c.status.Metadata.Name] && req.Timeout > 0 {
		r.exit(c, 143)
	}
	ended := c.ended
	if c.status.State == cri.ContainerState_CONTAINER_CREATED {
		ended = nil
	}
	r.mu.Unlock()
	if ended == nil {
		return &cri.StopContainerResponse{}, nil
	}
	select {
	case <-ended:
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	case <-time.After(time.Duration(req.Timeout) * time.Second):
		r.locked(func() { r.exit(c, 137) })
	}
	return &cri.StopContainerResponse{}, nil
}

// RemoveContainer implements CRI: it is idempotent.
func (r *Runtime) RemoveContainer(_ context.Context, req *cri.RemoveContainerRequest) (*cri.RemoveContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.begin("RemoveContainer", req.ContainerId); err != nil {
		return nil, err
	}
	if c := r.containers[req.ContainerId]; c != nil {
		r.exit(c, 137)
		r.tell(req.ContainerId, cri.ContainerEventType_CONTAINER_DELETED_EVENT)
		delete(r.containers, req.ContainerId)
	}
	return &cri.RemoveContainerResponse{}, nil
}

// ListContainers implements CRI.
func (r *Runtime) ListContainers(_ context.Context, req *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	resp := &cri.ListContainersResponse{}
	for _, c := range r.containers {
		if st := c.status; selected(st.Labels, req.GetFilter().GetLabelSelector()) {
			resp.Containers = append(resp.Containers, &cri.Container{
				Id: st.Id, PodSandboxId: c.sandbox, Metadata: st.Metadata, Image: st.Image, ImageRef: st.ImageRef, State: st.State,
				CreatedAt: st.CreatedAt, Labels: st.Labels, Annotations: st.Annotations,
			})
		}
	}
	return resp, nil
}

// ContainerStatus implements CRI.
func (r *Runtime) ContainerStatus(_ context.Context, req *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[req.ContainerId]
	if c == nil {
		return nil, notFound("container", req.ContainerId)
	}
	return &cri.ContainerStatusResponse{Status: clone(c.status)}, nil
}

// Exec implements CRI.
func (r *Runtime) Exec(_ context.Context, req *cri.ExecRequest) (*cri.ExecResponse, error) {
	return &cri.ExecResponse{Url: r.StreamURL + "/exec/" + req.ContainerId}, nil
}

// Attach implements CRI.
func (r *Runtime) Attach(_ context.Context, req *cri.AttachRequest) (*cri.AttachResponse, error) {
	if r.Attaching != nil {
		r.Attaching()
	}
	return &cri.AttachResponse{Url: r.StreamURL + "/attach/" + req.ContainerId}, nil
}

// PortForward implements CRI.
func (r *Runtime) PortForward(_ context.Context, req *cri.PortForwardRequest) (*cri.PortForwardResponse, error) {
	return &cri.PortForwardResponse{Url: r.StreamURL + "/portforward/" + req.PodSandboxId}, nil
}

// ImageStatus implements CRI.
func (r *Runtime) ImageStatus(_ context.Context, req *cri.ImageStatusRequest) (*cri.ImageStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.images[req.Image.Image] {
		return &cri.ImageStatusResponse{}, nil
	}
	return &cri.ImageStatusResponse{Image: &cri.Image{Id: req.Image.Image, RepoTags: []string{req.Image.Image}, Size: 1}}, nil
}

// PullImage implements CRI.
func (r *Runtime) PullImage(ctx context.Context, req *cri.PullImageRequest) (*cri.PullImageResponse, error) {
	r.mu.Lock()
	err, known := r.pulls[req.Image.Image]
	if berr := r.begin("PullImage", req.Image.Image); berr != nil {
		err = berr
	}
	r.mu.Unlock()
	if !known && err == nil {
		err = status.Errorf(codes.NotFound, "image %q: not found", req.Image.Image)
	}
	if status.Code(err) == codes.DeadlineExceeded {
		// A pull that hangs.
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if err != nil {
		return nil, err
	}
	r.HaveImage(req.Image.Image)
	return &cri.PullImageResponse{ImageRef: req.Image.Image}, nil
}
