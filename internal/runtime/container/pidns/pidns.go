// Package pidns finds the PID namespace that a container joins: its pod's, the node's, or that of another container.
package pidns

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/ns"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/runtime/container"
	"monopod.dev/monopod/internal/runtime/sandbox"
)

// Sandboxes is what the shared namespaces belong to.
type Sandboxes interface {
	// PIDNamespace is the path of a sandbox's shared PID namespace, empty for the node's. The first call makes it, with the pod's init.
	PIDNamespace(ctx context.Context, rec *sandbox.Record) (string, error)
}

// Executor holds the processes.
type Executor interface {
	// State tells what is known of a container, by its id.
	State(ctx context.Context, id ids.ContainerID) (protocol.ContainerState, error)
}

// Config is what a Finder works with.
type Config struct {
	Containers *container.Records
	Sandboxes  Sandboxes
	Executor   Executor
	Cgroups    *cgroup.Host
	Folders    container.Folders
}

// Finder is safe for concurrent use.
type Finder struct{ cfg Config }

// New returns a Finder.
func New(cfg Config) *Finder { return &Finder{cfg: cfg} }

// Options are the namespaces that a container asks for.
func Options(cfg *cri.ContainerConfig) *cri.NamespaceOption {
	return cfg.GetLinux().GetSecurityContext().GetNamespaceOptions()
}

// Namespace finds, or makes, the PID namespace that a container under creation is to join: its path, or neither that nor the
// host's, which is a new one.
func (f *Finder) Namespace(ctx context.Context, rec *container.Record, sb *sandbox.Record) (path string, host bool, err error) {
	switch o := Options(rec.Config()); o.GetPid() {
	case cri.NamespaceMode_POD:
		path, err := f.cfg.Sandboxes.PIDNamespace(ctx, sb)
		return path, path == "" && err == nil, err
	case cri.NamespaceMode_NODE:
		return "", true, nil
	case cri.NamespaceMode_TARGET:
		path := filepath.Join(f.cfg.Folders.Bundle(rec.ID), "pidns")
		return path, false, f.pin(ctx, sb, ids.ContainerID(o.GetTargetId()), path)
	default:
		return "", false, nil
	}
}

// Target returns the container whose PID namespace another one is to join: one of the same sandbox, which has a namespace of its own
// (NamespaceMode TARGET) and runs.
func (f *Finder) Target(sandboxID ids.SandboxID, id ids.ContainerID) (container.Record, error) {
	const field = "linux.security_context.namespace_options.target_id"
	rec, err := f.cfg.Containers.Get(id)
	switch {
	case errdefs.IsNotFound(err), err == nil && rec.SandboxID != sandboxID:
		return rec, fmt.Errorf("%s: sandbox %s has no container %q: %w", field, sandboxID, id, errdefs.ErrInvalidArgument)
	case err != nil:
		return rec, err
	case Options(rec.Config()).GetPid() != cri.NamespaceMode_CONTAINER:
		return rec, fmt.Errorf("%s: container %s has the PID namespace mode %s; the target's must be CONTAINER: %w", field, id, Options(rec.Config()).GetPid(), errdefs.ErrInvalidArgument)
	case rec.State() != cri.ContainerState_CONTAINER_RUNNING:
		return rec, fmt.Errorf("%s: container %s is %s; only a running one has a PID namespace to join: %w", field, id, rec.State(), errdefs.ErrFailedPrecondition)
	}
	return rec, nil
}

// pin keeps the target's PID namespace at path, which goes with the bundle.
func (f *Finder) pin(ctx context.Context, sb *sandbox.Record, id ids.ContainerID, path string) error {
	rec, err := f.Target(sb.ID, id)
	if err != nil {
		return err
	}
	s, err := f.cfg.Executor.State(ctx, id)
	if err == nil && (s.Phase != protocol.Running || s.PID == 0) {
		err = fmt.Errorf("it is %s: %w", s.Phase, errdefs.ErrFailedPrecondition)
	}
	if err == nil {
		err = ns.PinPID(path, s.PID, func() error {
			// A process that has got the number since is not in the target's cgroup.
			pids, err := f.cfg.Cgroups.Processes(sb.CgroupOf(rec.ID))
			if err == nil && !slices.Contains(pids, s.PID) {
				err = fmt.Errorf("it has ended: %w", errdefs.ErrFailedPrecondition)
			}
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("join the PID namespace of container %s: %w", id, err)
	}
	return nil
}
