package runtime

import (
	"context"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/systemd"
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

// cgroupDriver is how cgroups are made and named.
func (s *Server) cgroupDriver() cri.CgroupDriver {
	if s.cfg.CgroupDriver == systemd.Driver {
		return cri.CgroupDriver_SYSTEMD
	}
	return cri.CgroupDriver_CGROUPFS
}

// RuntimeConfig tells a kubelet which cgroup driver to use.
func (s *Server) RuntimeConfig(context.Context, *cri.RuntimeConfigRequest) (*cri.RuntimeConfigResponse, error) {
	return &cri.RuntimeConfigResponse{Linux: &cri.LinuxRuntimeConfiguration{CgroupDriver: s.cgroupDriver()}}, nil
}
