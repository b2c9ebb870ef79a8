package container

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/host/ns"
	"monopod.dev/monopod/internal/runtime/sandbox"
)

func pidOptions(cfg *cri.ContainerConfig) *cri.NamespaceOption {
	return cfg.GetLinux().GetSecurityContext().GetNamespaceOptions()
}

// pidNamespace finds, or makes, the PID namespace that a container under creation is to join: its path, or neither that nor the
// host's, which is a new one.
func (m *Manager) pidNamespace(ctx context.Context, rec *Record, sb *sandbox.Record) (path string, host bool, err error) {
	switch o := pidOptions(rec.Config()); o.GetPid() {
	case cri.NamespaceMode_POD:
		path, err := m.sandboxes.PIDNamespace(ctx, sb)
		return path, path == "" && err == nil, err
	case cri.NamespaceMode_NODE:
		return "", true, nil
	case cri.NamespaceMode_TARGET:
		path := filepath.Join(m.Bundle(rec.ID), "pidns")
		return path, false, m.pinTarget(ctx, sb, o.GetTargetId(), path)
	default:
		return "", false, nil
	}
}

// target returns the container whose PID namespace another one is to join: one of the same sandbox, which has a namespace of its own
// (NamespaceMode TARGET) and runs.
func (m *Manager) target(sandboxID, id string) (Record, error) {
	const field = "linux.security_context.namespace_options.target_id"
	rec, err := m.Get(id)
	switch {
	case errdefs.IsNotFound(err), err == nil && rec.SandboxID != sandboxID:
		return rec, fmt.Errorf("%s: sandbox %s has no container %q: %w", field, sandboxID, id, errdefs.ErrInvalidArgument)
	case err != nil:
		return rec, err
	case pidOptions(rec.Config()).GetPid() != cri.NamespaceMode_CONTAINER:
		return rec, fmt.Errorf("%s: container %s has the PID namespace mode %s; the target's must be CONTAINER: %w", field, id, pidOptions(rec.Config()).GetPid(), errdefs.ErrInvalidArgument)
	case rec.State() != cri.ContainerState_CONTAINER_RUNNING:
		return rec, fmt.Errorf("%s: container %s is %s; only a running one has a PID namespace to join: %w", field, id, rec.State(), errdefs.ErrFailedPrecondition)
	}
	return rec, nil
}

// pinTarget keeps the target's PID namespace at path, which goes with the bundle.
func (m *Manager) pinTarget(ctx context.Context, sb *sandbox.Record, id, path string) error {
	rec, err := m.target(sb.ID, id)
	if err != nil {
		return err
	}
	s, err := m.cfg.Executor.State(ctx, id)
	if err == nil && (s.Phase != protocol.Running || s.PID == 0) {
		err = fmt.Errorf("it is %s: %w", s.Phase, errdefs.ErrFailedPrecondition)
	}
	if err == nil {
		err = ns.PinPID(path, s.PID, func() error {
			// A process that has got the number since is not in the target's cgroup.
			pids, err := m.cfg.Cgroups.Processes(sb.CgroupOf(rec.ID))
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
