package runtime

import (
	"context"
	"iter"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/ocispec"
	"monopod.dev/monopod/internal/runtime/container"
)

// ContainerStatus tells what is known of one container.
func (s *Server) ContainerStatus(ctx context.Context, req *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	id, err := s.containerID(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	rec, err := s.containers.Get(id)
	if err != nil {
		return nil, err
	}
	resp := &cri.ContainerStatusResponse{Status: s.containerStatus(&rec)}
	if req.GetVerbose() {
		if resp.Info, err = s.details.verboseContainer(ctx, &rec); err != nil {
			return nil, err
		}
	}
	return resp, nil
}

func (s *rooms) containerStatus(rec *container.Record) *cri.ContainerStatus {
	cfg := rec.Config()
	st := &cri.ContainerStatus{
		Id: string(rec.ID), Metadata: cfg.GetMetadata(), State: rec.State(), CreatedAt: rec.CreatedAt.UnixNano(), StartedAt: nanos(rec.StartedAt),
		Image: statusImage(cfg.GetImage(), rec.ImageID), ImageRef: rec.ImageRef, ImageId: string(rec.ImageID), Reason: rec.Reason(), Labels: cfg.GetLabels(), Annotations: cfg.GetAnnotations(),
		Mounts: rec.Mounts(), LogPath: rec.LogPath, StopSignal: container.CRISignal(rec.StopSignal, cfg.GetStopSignal()),
		User: &cri.ContainerUser{Linux: &cri.LinuxContainerUser{Uid: int64(rec.UID), Gid: int64(rec.GID)}},
	}
	for _, g := range rec.Groups {
		st.User.Linux.SupplementalGroups = append(st.User.Linux.SupplementalGroups, int64(g))
	}
	if r := ocispec.EffectiveResources(rec.Resources(), s.host.Spec); r != nil {
		st.Resources = &cri.ContainerResources{Linux: r}
	}
	if rec.Exit != nil {
		st.FinishedAt, st.ExitCode, st.Message = nanos(rec.Exit.At), int32(rec.Exit.Code), rec.Exit.Message
	}
	return st
}

// statusImage is the image of a container's status. Kubelets give the image that they have pulled by its id, with the name that
// the pod has for it beside it, and put what the status has into the pod's: there a name tells more. The id is in image_id.
func statusImage(spec *cri.ImageSpec, id ids.ImageID) *cri.ImageSpec {
	if spec.GetUserSpecifiedImage() == "" || spec.GetImage() != string(id) {
		return spec
	}
	named := proto.Clone(spec).(*cri.ImageSpec)
	named.Image = spec.GetUserSpecifiedImage()
	return named
}

// nanos is a time as CRI has it: nanoseconds since 1970, 0 for none.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// containerStatuses are those of a sandbox's containers, the newest first: a kubelet with evented PLEG takes the first one of a name
// for the container as it is, and counts restarts from it.
func (s *rooms) containerStatuses(sandboxID ids.SandboxID) []*cri.ContainerStatus {
	recs := s.containers.InSandbox(sandboxID)
	slices.Reverse(recs)
	var all []*cri.ContainerStatus
	for _, rec := range recs {
		all = append(all, s.containerStatus(&rec))
	}
	return all
}

// listedContainers are the containers that a filter lets through. They are looked up at once, and told one by one.
func (s *rooms) listedContainers(f *cri.ContainerFilter) iter.Seq[*cri.Container] {
	all := s.containers.Select(f)
	return func(yield func(*cri.Container) bool) {
		for _, rec := range all {
			cfg := rec.Config()
			if !yield(&cri.Container{Id: string(rec.ID), PodSandboxId: string(rec.SandboxID), Metadata: cfg.GetMetadata(), Image: cfg.GetImage(),
				ImageRef: rec.ImageRef, ImageId: string(rec.ImageID), State: rec.State(), CreatedAt: rec.CreatedAt.UnixNano(), Labels: cfg.GetLabels(), Annotations: cfg.GetAnnotations()}) {
				return
			}
		}
	}
}
