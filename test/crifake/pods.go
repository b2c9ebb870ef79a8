package crifake

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func clone[M proto.Message](m M) M { return proto.Clone(m).(M) }

func selected(labels, selector map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// RunPodSandbox implements CRI: a name is unique by pod and attempt.
func (r *Runtime) RunPodSandbox(_ context.Context, req *cri.RunPodSandboxRequest) (*cri.RunPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	cfg := req.Config
	if err := r.begin("RunPodSandbox", cfg.Metadata.Name); err != nil {
		return nil, err
	}
	for _, s := range r.sandboxes {
		if proto.Equal(s.Metadata, cfg.Metadata) {
			return nil, status.Errorf(codes.AlreadyExists, "sandbox %v exists", cfg.Metadata)
		}
	}
	id := r.id("s")
	r.sandboxes[id] = &cri.PodSandboxStatus{
		Id: id, Metadata: cfg.Metadata, State: cri.PodSandboxState_SANDBOX_READY, CreatedAt: time.Now().UnixNano(),
		Labels: cfg.Labels, Annotations: cfg.Annotations, Network: &cri.PodSandboxNetworkStatus{Ip: "10.61.0.9"},
		Linux: &cri.LinuxPodSandboxStatus{Namespaces: &cri.Namespace{Options: cfg.GetLinux().GetSecurityContext().GetNamespaceOptions()}},
	}
	r.tell(id, cri.ContainerEventType_CONTAINER_STARTED_EVENT)
	return &cri.RunPodSandboxResponse{PodSandboxId: id}, nil
}

// Sandbox is the status of the sandbox of a pod; nil: it has none, or more than one.
func (r *Runtime) Sandbox(podUID string) *cri.PodSandboxStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found *cri.PodSandboxStatus
	for _, s := range r.sandboxes {
		if s.GetMetadata().GetUid() != podUID {
			continue
		}
		if found != nil {
			return nil
		}
		found = clone(s)
	}
	return found
}

// StopPodSandbox implements CRI: it kills what runs, and is idempotent.
func (r *Runtime) StopPodSandbox(_ context.Context, req *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.begin("StopPodSandbox", req.PodSandboxId); err != nil {
		return nil, err
	}
	s := r.sandboxes[req.PodSandboxId]
	if s == nil {
		return &cri.StopPodSandboxResponse{}, nil
	}
	for _, c := range r.containers {
		if c.sandbox == req.PodSandboxId {
			r.exit(c, 137)
		}
	}
	s.State = cri.PodSandboxState_SANDBOX_NOTREADY
	r.tell(s.Id, cri.ContainerEventType_CONTAINER_STOPPED_EVENT)
	return &cri.StopPodSandboxResponse{}, nil
}

// RemovePodSandbox implements CRI: it removes the containers as well, and is idempotent.
func (r *Runtime) RemovePodSandbox(_ context.Context, req *cri.RemovePodSandboxRequest) (*cri.RemovePodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.begin("RemovePodSandbox", req.PodSandboxId); err != nil {
		return nil, err
	}
	for id, c := range r.containers {
		if c.sandbox == req.PodSandboxId {
			r.exit(c, 137)
			delete(r.containers, id)
		}
	}
	delete(r.sandboxes, req.PodSandboxId)
	return &cri.RemovePodSandboxResponse{}, nil
}

// PodSandboxStatus implements CRI.
func (r *Runtime) PodSandboxStatus(_ context.Context, req *cri.PodSandboxStatusRequest) (*cri.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[req.PodSandboxId]
	if s == nil {
		return nil, notFound("sandbox", req.PodSandboxId)
	}
	return &cri.PodSandboxStatusResponse{Status: clone(s)}, nil
}

// ListPodSandbox implements CRI.
func (r *Runtime) ListPodSandbox(_ context.Context, req *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.failures["ListPodSandbox"]; err != nil {
		return nil, err
	}
	resp := &cri.ListPodSandboxResponse{}
	for _, s := range r.sandboxes {
		f := req.GetFilter()
		if !selected(s.Labels, f.GetLabelSelector()) || f.GetState() != nil && f.GetState().State != s.State {
			continue
		}
		resp.Items = append(resp.Items, &cri.PodSandbox{
			Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels, Annotations: s.Annotations,
		})
	}
	return resp, nil
}
