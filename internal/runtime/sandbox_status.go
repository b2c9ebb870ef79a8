package runtime

import (
	"context"
	"iter"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/runtime/sandbox"
)

// PodSandboxStatus tells what is known of one sandbox, with the statuses of its containers.
func (s *Server) PodSandboxStatus(ctx context.Context, req *cri.PodSandboxStatusRequest) (*cri.PodSandboxStatusResponse, error) {
	id, err := s.sandboxID(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	// Taken before the statuses: a kubelet drops the event of what happened until then, and would never learn of what is not in them.
	at := time.Now().UnixNano()
	rec, err := s.sandboxes.Get(id)
	if err != nil {
		return nil, err
	}
	resp := &cri.PodSandboxStatusResponse{Status: sandboxStatus(&rec), ContainersStatuses: s.containerStatuses(id), Timestamp: at}
	if req.GetVerbose() {
		if resp.Info, err = s.details.verboseSandbox(ctx, &rec); err != nil {
			return nil, err
		}
	}
	return resp, nil
}

func sandboxStatus(rec *sandbox.Record) *cri.PodSandboxStatus {
	cfg := rec.Config()
	st := &cri.PodSandboxStatus{
		Id: string(rec.ID), Metadata: cfg.GetMetadata(), State: rec.State(), CreatedAt: rec.CreatedAt.UnixNano(), Network: &cri.PodSandboxNetworkStatus{},
		Linux:  &cri.LinuxPodSandboxStatus{Namespaces: &cri.Namespace{Options: cfg.GetLinux().GetSecurityContext().GetNamespaceOptions()}},
		Labels: cfg.GetLabels(), Annotations: cfg.GetAnnotations(), RuntimeHandler: rec.AskedHandler(),
	}
	// The address of a sandbox that is not ready may be somebody else's by now.
	if rec.Ready() {
		for i, ip := range rec.IPs {
			if i == 0 {
				st.Network.Ip = ip.String()
			} else {
				st.Network.AdditionalIps = append(st.Network.AdditionalIps, &cri.PodIP{Ip: ip.String()})
			}
		}
	}
	return st
}

// podSandboxes are the sandboxes that a filter lets through. They are looked up at once, and told one by one.
func (s *rooms) podSandboxes(f *cri.PodSandboxFilter) iter.Seq[*cri.PodSandbox] {
	all := s.sandboxes.Select(f)
	return func(yield func(*cri.PodSandbox) bool) {
		for _, rec := range all {
			cfg := rec.Config()
			if !yield(&cri.PodSandbox{Id: string(rec.ID), Metadata: cfg.GetMetadata(), State: rec.State(), CreatedAt: rec.CreatedAt.UnixNano(),
				Labels: cfg.GetLabels(), Annotations: cfg.GetAnnotations(), RuntimeHandler: rec.AskedHandler()}) {
				return
			}
		}
	}
}
