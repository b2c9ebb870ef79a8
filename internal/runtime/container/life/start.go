package life

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
)

// Start lets the container's program run. One that runs already is started, because a client whose call timed out asks again;
// one that has exited is errdefs.ErrFailedPrecondition. A container whose program cannot be executed has exited when Start
// returns the error, with code 128 and reason StartError.
func (m *Manager) Start(ctx context.Context, id ids.ContainerID) error {
	return m.cfg.Containers.Do(ctx, id, func() error {
		rec, err := m.cfg.Containers.Get(id)
		if err != nil {
			return err
		}
		switch rec.State() {
		case cri.ContainerState_CONTAINER_RUNNING:
			return nil
		case cri.ContainerState_CONTAINER_CREATED:
		default:
			return fmt.Errorf("container %s is %s; only a created one can be started: %w", id, rec.State(), errdefs.ErrFailedPrecondition)
		}
		if sb, err := m.cfg.Sandboxes.Get(rec.SandboxID); err != nil || !sb.Ready() {
			return notReady(rec.SandboxID)
		}
		if err := failpoint.Hit("runtime/container-start/before"); err != nil {
			return err
		}
		started, err := m.cfg.Executor.Start(ctx, id)
		if err != nil {
			return m.startFailed(ctx, id, m.cfg.CDI.WithHooks(rec.Config(), err))
		}
		if err := failpoint.Hit("runtime/container-start/started"); err != nil {
			return err
		}
		if err := m.cfg.Containers.Observe(protocol.ContainerState{ID: id, Phase: protocol.Running, StartedAt: started.StartedAt}); err != nil {
			return err
		}
		return failpoint.Hit("runtime/container-start/stored")
	})
}

// startFailed takes in what became of a container whose start returned an error, so that its status tells the same as the error.
func (m *Manager) startFailed(ctx context.Context, id ids.ContainerID, cause error) error {
	// The executor has named what it did and to which container.
	if ctx.Err() != nil {
		return cause // Watch takes it in
	}
	s, err := m.cfg.Executor.State(ctx, id)
	if err != nil {
		return errors.Join(cause, err)
	}
	if err := m.cfg.Containers.Observe(s); err != nil {
		return errors.Join(cause, err)
	}
	if s.Phase == protocol.Running {
		return nil // the answer was lost on its way
	}
	return cause
}
