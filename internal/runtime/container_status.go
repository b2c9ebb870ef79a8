package runtime

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/runtime/container"
)

// ContainerStatus tells what is known of one container.
func (s *Server) ContainerStatus(_ context.Context, req *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	id, err := s.containerID(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	rec, err := s.containers.Get(id)
	if err != nil {
		return nil, err
	}
	resp := &cri.ContainerStatusResponse{Status: containerStatus(&rec)}
	if req.GetVerbose() {
		config, err := protojson.Marshal(rec.Config())
		if err != nil {
			return nil, err
		}
		raw, err := json.Marshal(map[string]any{"sandboxID": rec.SandboxID, "config": json.RawMessage(config), "bootID": rec.BootID, "bundle": s.containers.Bundle(id)})
		if err != nil {
			return nil, err
		}
		resp.Info = map[string]string{"info": string(raw)}
	}
	return resp, nil
}

func containerStatus(rec *container.Record) *cri.ContainerStatus {
	cfg := rec.Config()
	st := &cri.ContainerStatus{
		Id: rec.ID, Metadata: cfg.GetMetadata(), State: rec.State(), CreatedAt: rec.CreatedAt.UnixNano(), StartedAt: nanos(rec.StartedAt),
		Image: cfg.GetImage(), ImageRef: rec.ImageRef, ImageId: rec.ImageID, Reason: rec.Reason(), Labels: cfg.GetLabels(), Annotations: cfg.GetAnnotations(),
		Mounts: cfg.GetMounts(), LogPath: rec.LogPath, StopSignal: cfg.GetStopSignal(),
		User: &cri.ContainerUser{Linux: &cri.LinuxContainerUser{Uid: int64(rec.UID), Gid: int64(rec.GID)}},
	}
	for _, g := range rec.Groups {
		st.User.Linux.SupplementalGroups = append(st.User.Linux.SupplementalGroups, int64(g))
	}
	if r := cfg.GetLinux().GetResources(); r != nil {
		st.Resources = &cri.ContainerResources{Linux: r}
	}
	if rec.Exit != nil {
		st.FinishedAt, st.ExitCode, st.Message = nanos(rec.Exit.At), int32(rec.Exit.Code), rec.Exit.Message
	}
	return st
}

// nanos is a time as CRI has it: nanoseconds since 1970, 0 for none.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func (s *Server) containerStatuses(sandboxID string) []*cri.ContainerStatus {
	var all []*cri.ContainerStatus
	for _, rec := range s.containers.InSandbox(sandboxID) {
		all = append(all, containerStatus(&rec))
	}
	return all
}

// ListContainers lists the containers that the filter lets through.
func (s *Server) ListContainers(_ context.Context, req *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	f := req.GetFilter()
	resp := &cri.ListContainersResponse{}
	for _, rec := range s.containers.List() {
		cfg := rec.Config()
		if !strings.HasPrefix(rec.ID, f.GetId()) || !strings.HasPrefix(rec.SandboxID, f.GetPodSandboxId()) ||
			!hasContainerState(f, rec.State()) || !selects(f.GetLabelSelector(), cfg.GetLabels()) {
			continue
		}
		resp.Containers = append(resp.Containers, &cri.Container{Id: rec.ID, PodSandboxId: rec.SandboxID, Metadata: cfg.GetMetadata(), Image: cfg.GetImage(),
			ImageRef: rec.ImageRef, ImageId: rec.ImageID, State: rec.State(), CreatedAt: rec.CreatedAt.UnixNano(), Labels: cfg.GetLabels(), Annotations: cfg.GetAnnotations()})
	}
	return resp, nil
}
