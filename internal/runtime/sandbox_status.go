package runtime

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/runtime/sandbox"
)

// PodSandboxStatus tells what is known of one sandbox, with the statuses of its containers.
func (s *Server) PodSandboxStatus(_ context.Context, req *cri.PodSandboxStatusRequest) (*cri.PodSandboxStatusResponse, error) {
	id, err := s.sandboxID(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	rec, err := s.sandboxes.Get(id)
	if err != nil {
		return nil, err
	}
	resp := &cri.PodSandboxStatusResponse{Status: sandboxStatus(&rec), ContainersStatuses: s.containerStatuses(id), Timestamp: time.Now().UnixNano()}
	if req.GetVerbose() {
		config, err := protojson.Marshal(rec.Config())
		if err != nil {
			return nil, err
		}
		raw, err := json.Marshal(map[string]any{"config": json.RawMessage(config), "bootID": rec.BootID, "cgroup": rec.Cgroup, "directory": s.sandboxes.Dir(id)})
		if err != nil {
			return nil, err
		}
		resp.Info = map[string]string{"info": string(raw)}
	}
	return resp, nil
}

func sandboxStatus(rec *sandbox.Record) *cri.PodSandboxStatus {
	cfg := rec.Config()
	st := &cri.PodSandboxStatus{
		Id: rec.ID, Metadata: cfg.GetMetadata(), State: rec.State(), CreatedAt: rec.CreatedAt.UnixNano(), Network: &cri.PodSandboxNetworkStatus{},
		Linux:  &cri.LinuxPodSandboxStatus{Namespaces: &cri.Namespace{Options: cfg.GetLinux().GetSecurityContext().GetNamespaceOptions()}},
		Labels: cfg.GetLabels(), Annotations: cfg.GetAnnotations(), RuntimeHandler: rec.Handler,
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

// ListPodSandbox lists the sandboxes that the filter lets through.
func (s *Server) ListPodSandbox(_ context.Context, req *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	f := req.GetFilter()
	resp := &cri.ListPodSandboxResponse{}
	for _, rec := range s.sandboxes.List() {
		cfg := rec.Config()
		if !strings.HasPrefix(rec.ID, f.GetId()) || !hasSandboxState(f, rec.State()) || !selects(f.GetLabelSelector(), cfg.GetLabels()) {
			continue
		}
		resp.Items = append(resp.Items, &cri.PodSandbox{Id: rec.ID, Metadata: cfg.GetMetadata(), State: rec.State(), CreatedAt: rec.CreatedAt.UnixNano(),
			Labels: cfg.GetLabels(), Annotations: cfg.GetAnnotations(), RuntimeHandler: rec.Handler})
	}
	return resp, nil
}
