package runtime

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	goruntime "runtime"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/ocispec"
	"monopod.dev/monopod/internal/runtime/pulse"
)

// Status says whether sandboxes can be run, and what the runtime can do. It waits neither for an executor nor for a network that
// does not answer.
func (s *Server) Status(ctx context.Context, req *cri.StatusRequest) (*cri.StatusResponse, error) {
	ready := &cri.RuntimeCondition{Type: cri.RuntimeReady, Status: true}
	if err := s.executor.Check(ctx); err != nil {
		ready.Status, ready.Reason, ready.Message = false, "ExecutorNotReady", fmt.Sprintf("the executor, which holds the containers: %v", err)
	}
	network := &cri.RuntimeCondition{Type: cri.NetworkReady, Status: true}
	if err := s.network.Check(ctx); err != nil {
		network.Status, network.Reason, network.Message = false, "NetworkNotReady", err.Error()
		var reason interface{ Reason() string }
		if errors.As(err, &reason) {
			network.Reason = reason.Reason()
		}
	}
	resp := &cri.StatusResponse{
		Status:          &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{ready, network}},
		RuntimeHandlers: s.handlers(),
		Features:        &cri.RuntimeFeatures{SupplementalGroupsPolicy: true, MountOptions: true},
	}
	if req.GetVerbose() {
		var err error
		if resp.Info, err = s.statusInfo(ctx); err != nil {
			return nil, err
		}
	}
	return resp, nil
}

// watchExecutor asks whether the executor answers: a worker that is replaced is away for some milliseconds, one that hangs is not
// ready after a second.
func watchExecutor(e Executor) *pulse.Pulse {
	return pulse.New(pulse.Config{
		Fresh: 500 * time.Millisecond, Wait: 100 * time.Millisecond, Silence: time.Second, Limit: 3 * time.Second,
		Ask: func(ctx context.Context) error {
			_, err := e.Ping(ctx)
			return err
		},
	})
}

// watchNetwork asks whether the network is ready, every time: it answers at once, unless it is to be repaired, or its plugins, which
// are programs of others, hang.
func watchNetwork(n Network) *pulse.Pulse {
	return pulse.New(pulse.Config{Wait: 2 * time.Second, Silence: 5 * time.Second, Limit: 30 * time.Second, Ask: n.Status})
}

// statusInfo is what people look for when something is amiss, each value as JSON.
func (s *Server) statusInfo(ctx context.Context) (map[string]string, error) {
	h := &s.host.Spec
	executor := s.executorInfo(ctx)
	return jsonInfo(map[string]any{
		"host": map[string]any{
			"cgroupMode": s.cgroups.Mode(), "cgroupControllers": s.cgroups.Controllers(), "cgroupDriver": s.cgroupDriver().String(), "swapLimit": h.SwapLimit,
			"hugepageSizes": h.HugepageSizes, "capabilities": h.Capabilities, "minOOMScoreAdj": h.MinOOMScoreAdj, "appArmor": h.AppArmor, "selinux": selinuxInfo(h),
			"recursiveReadOnly": h.RecursiveReadOnly, "noUserNamespaces": h.NoUserNamespaces,
			// What a container gets less of than it asks for, because this host itself has no more.
			"clamped": clamped(s.host.MissingCapabilities(), h.MinOOMScoreAdj, executor.limits),
		},
		"network":  map[string]any{"warnings": s.cfg.Network.Warnings()},
		"executor": executor,
		"golang":   goruntime.Version(),
		"config": map[string]any{
			"socket": s.cfg.Socket, "dataDir": s.cfg.DataDir, "runDir": s.cfg.RunDir, "cgroupRoot": s.cfg.CgroupRoot, "cdiSpecDirs": s.cfg.CDISpecDirs,
			"streaming": s.cfg.Streaming, "version": s.cfg.Version, "defaultRuntimeHandler": nativeHandler,
		},
	})
}

// selinuxInfo is what containers are labelled with, or why they are not.
func selinuxInfo(h *ocispec.Host) map[string]any {
	if h.SELinux == nil {
		return map[string]any{"enabled": false, "why": h.NoSELinux}
	}
	return map[string]any{"enabled": true, "process": h.SELinux.Process.String(), "file": h.SELinux.File.String(),
		"unconfined": h.SELinux.Unconfined.String(), "categories": h.SELinux.Categories}
}

// executorInfo is who holds the containers.
type executorInfo struct {
	Error     string `json:"error,omitempty"`
	Build     string `json:"build,omitempty"`
	Protocol  int    `json:"protocol,omitempty"`
	KeeperPID int    `json:"keeperPID,omitempty"`
	WorkerPID int    `json:"workerPID,omitempty"`
	// Behind says why the executor that runs is not the installed one; empty: it is.
	Behind string `json:"behind,omitempty"`
	// Go and Libraries are of the program that runs, which may be older than this one.
	Go        string            `json:"go,omitempty"`
	Libraries map[string]string `json:"libraries,omitempty"`
	limits    map[string]proc.Limit
}

// libraries are those that make containers.
var libraries = map[string]bool{"github.com/opencontainers/runc": true, "github.com/opencontainers/cgroups": true, "github.com/seccomp/libseccomp-golang": true}

func (s *Server) executorInfo(ctx context.Context) executorInfo {
	ctx, cancel := context.WithTimeout(ctx, executorPatience)
	defer cancel()
	hello, err := s.cfg.Executor.Ping(ctx)
	if err != nil {
		return executorInfo{Error: err.Error(), Behind: s.cfg.ExecutorBehind}
	}
	info := executorInfo{Build: hello.Build, Protocol: hello.Version, KeeperPID: hello.KeeperPID, WorkerPID: hello.WorkerPID, Behind: s.cfg.ExecutorBehind, Libraries: map[string]string{}}
	if info.limits, err = proc.Limits(hello.WorkerPID); err != nil {
		info.Error = err.Error()
	}
	build, err := buildinfo.ReadFile(fmt.Sprintf("/proc/%d/exe", hello.WorkerPID))
	if err != nil {
		info.Error = err.Error()
		return info
	}
	info.Go = build.GoVersion
	for _, dep := range build.Deps {
		if libraries[dep.Path] {
			info.Libraries[dep.Path] = dep.Version
		}
	}
	return info
}

// clamped says in words what a restricted host takes from containers. Limits are those of the executor; nil: unknown.
func clamped(missing []string, minOOMScoreAdj *int, limits map[string]proc.Limit) []string {
	var all []string
	raises := true // CAP_SYS_RESOURCE lets the executor raise limits
	for _, name := range missing {
		all = append(all, "capability "+name+": not given")
		raises = raises && name != "CAP_SYS_RESOURCE"
	}
	if minOOMScoreAdj != nil {
		all = append(all, fmt.Sprintf("oom_score_adj: not below %d", *minOOMScoreAdj))
	}
	if raises {
		return all
	}
	for _, name := range sortedKeys(limits) {
		if hard := limits[name].Hard; hard != proc.Unlimited {
			all = append(all, fmt.Sprintf("rlimit, %s: not above %d", name, hard))
		}
	}
	return all
}
