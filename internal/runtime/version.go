package runtime

import (
	"context"
	"encoding/json"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtimeAPIVersion is CRI's version, and kubeAPIVersion the one that kubelets send and expect back (VersionResponse.version).
const (
	runtimeAPIVersion = "v1"
	kubeAPIVersion    = "0.1.0"
)

// Version says who serves.
func (s *Server) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{Version: kubeAPIVersion, RuntimeName: Name, RuntimeVersion: semver(s.cfg.Version), RuntimeApiVersion: runtimeAPIVersion}, nil
}

// semver makes a version of a build without a tag, such as a commit's name, compatible with semantic versioning.
func semver(v string) string {
	v = strings.TrimPrefix(v, "v")
	if strings.Count(v, ".") >= 2 {
		return v
	}
	return "0.0.0-" + v
}

// Status says whether sandboxes can be run, and what the runtime can do.
func (s *Server) Status(ctx context.Context, req *cri.StatusRequest) (*cri.StatusResponse, error) {
	network := &cri.RuntimeCondition{Type: cri.NetworkReady, Status: true}
	if err := s.cfg.Network.Status(ctx); err != nil {
		network.Status, network.Reason, network.Message = false, "NetworkNotReady", err.Error()
	}
	features := &cri.RuntimeHandlerFeatures{}
	resp := &cri.StatusResponse{
		Status: &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{
			{Type: cri.RuntimeReady, Status: true}, network,
		}},
		RuntimeHandlers: []*cri.RuntimeHandler{{Name: "", Features: features}, {Name: nativeHandler, Features: features}},
		Features:        &cri.RuntimeFeatures{SupplementalGroupsPolicy: true},
	}
	if req.GetVerbose() {
		raw, err := json.Marshal(map[string]any{
			"cgroupMode": s.cgroups.Mode(), "cgroupControllers": s.cgroups.Controllers(),
			"capabilities": s.host.Spec.Capabilities, "minOOMScoreAdj": s.host.Spec.MinOOMScoreAdj, "cdiSpecDirs": s.cfg.CDISpecDirs,
		})
		if err != nil {
			return nil, err
		}
		resp.Info = map[string]string{"host": string(raw)}
	}
	return resp, nil
}

// RuntimeConfig tells a kubelet which cgroup driver to use.
func (s *Server) RuntimeConfig(context.Context, *cri.RuntimeConfigRequest) (*cri.RuntimeConfigResponse, error) {
	return &cri.RuntimeConfigResponse{Linux: &cri.LinuxRuntimeConfiguration{CgroupDriver: cri.CgroupDriver_CGROUPFS}}, nil
}
