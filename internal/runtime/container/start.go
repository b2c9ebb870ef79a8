package container

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/failpoint"
)

// Start lets the container's program run. Only a created container can be started; one whose program cannot be executed
// has exited afterwards, with code 128 and reason StartError.
func (m *Manager) Start(ctx context.Context, id string) error {
	return m.flight.One(ctx, id, func() error {
		rec, err := m.Get(id)
		if err != nil {
			return err
		}
		if rec.State() != cri.ContainerState_CONTAINER_CREATED {
			return fmt.Errorf("container %s is %s; only a created one can be started: %w", id, rec.State(), errdefs.ErrFailedPrecondition)
		}
		if err := failpoint.Hit("runtime/container-start/before"); err != nil {
			return err
		}
		started, err := m.cfg.Executor.Start(ctx, id)
		if err != nil {
			return fmt.Errorf("start container %s: %w", id, err)
		}
		if err := failpoint.Hit("runtime/container-start/started"); err != nil {
			return err
		}
		return m.observe(protocol.ContainerState{ID: id, Phase: protocol.Running, StartedAt: started.StartedAt})
	})
}

// observe takes in what the executor says of a container. It is repeatable and takes facts in any order: an event and the
// answer to a call may tell the same thing.
func (m *Manager) observe(s protocol.ContainerState) error {
	var started, stopped bool
	rec, err := m.modify(s.ID, func(r *Record) bool {
		if !s.StartedAt.IsZero() && r.StartedAt.IsZero() {
			r.StartedAt = s.StartedAt
			started = true
		}
		if s.Phase == protocol.Exited && s.Exit != nil && r.Exit == nil {
			exit := *s.Exit
			r.Exit = &exit
			stopped = true
		}
		return started || stopped
	})
	if errdefs.IsNotFound(err) {
		return nil // it is being removed, or was never ours
	}
	if err != nil {
		return err
	}
	// A container that is half made has no listeners yet: its Create tells.
	if !rec.visible() {
		return nil
	}
	if started {
		m.cfg.Listener.ContainerStarted(rec)
	}
	if stopped {
		m.cfg.Listener.ContainerStopped(rec)
	}
	return nil
}
