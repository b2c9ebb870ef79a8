package life

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/ocispec"
	"monopod.dev/monopod/internal/runtime/container"
	"monopod.dev/monopod/internal/runtime/records"
)

// updateBound is how long an Update may take when its client has gone: one that is cut in the middle would be half done.
const updateBound = 30 * time.Second

// Update changes the resources of a container that was created and has not ended, without a restart. What r leaves out stays. It is
// all or nothing: after an error the container has what it had. When the executor cannot be reached, or monopod dies meanwhile,
// what holds is not known; the update is then finished by the next one, or by recovery.
func (m *Manager) Update(ctx context.Context, id ids.ContainerID, r *cri.LinuxContainerResources) error {
	return m.cfg.Containers.Do(ctx, id, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), updateBound)
		defer cancel()
		rec, err := m.cfg.Containers.Get(id)
		if err != nil {
			return err
		}
		if rec.Exit != nil {
			return fmt.Errorf("container %s is %s; only one that has not ended has resources to update: %w", id, rec.State(), errdefs.ErrFailedPrecondition)
		}
		if rec, err = m.settle(ctx, rec); err != nil {
			return fmt.Errorf("container %s: finish the update before this one: %w", id, err)
		}
		next := ocispec.MergeResources(rec.Resources(), r)
		if _, err := ocispec.Resources(next, m.cfg.Host.Spec); err != nil {
			return err
		}
		rec, err = m.cfg.Containers.Modify(id, func(r *container.Record) bool {
			r.Pending = &records.Proto[*cri.LinuxContainerResources]{Message: next}
			return true
		})
		if err != nil {
			return err
		}
		if err := failpoint.Hit("runtime/container-update/persisted"); err != nil {
			return err
		}
		if _, err := m.settle(ctx, rec); err != nil {
			return fmt.Errorf("update container %s: %w", id, err)
		}
		return nil
	})
}

// settle gives the container the resources of an update that was begun, and publishes them. One that fails for good is forgotten:
// the old ones hold. A container that has ended needs none.
func (m *Manager) settle(ctx context.Context, rec container.Record) (container.Record, error) {
	if rec.Pending == nil {
		return rec, nil
	}
	var err error
	if rec.Exit == nil {
		err = m.apply(ctx, &rec, rec.Pending.Message)
	}
	if unknown(err) {
		return rec, err
	}
	if err == nil {
		err = failpoint.Hit("runtime/container-update/applied")
		if err != nil {
			return rec, err
		}
	}
	settled, merr := m.cfg.Containers.Modify(rec.ID, func(r *container.Record) bool {
		if err == nil {
			r.Updated = r.Pending
		}
		r.Pending = nil
		return true
	})
	return settled, errors.Join(err, merr)
}

// unknown says that after such an error the executor may have done what it was asked for.
func unknown(err error) bool {
	return errdefs.IsUnavailable(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// apply makes the kernel hold the container to resources. The scores come first, because they can always be taken back.
func (m *Manager) apply(ctx context.Context, rec *container.Record, next *cri.LinuxContainerResources) error {
	host := m.cfg.Host.Spec
	resources, err := ocispec.Resources(next, host)
	if err != nil {
		return err
	}
	if resources.Memory != nil && resources.Memory.Limit != nil {
		// On v2 the kernel would kill until the rest fits; v1 refuses by itself. An update is no way to kill a container.
		resources.Memory.CheckBeforeUpdate = new(true)
	}
	was, now := ocispec.OOMScoreAdj(rec.Resources(), host), ocispec.OOMScoreAdj(next, host)
	if err := m.rescore(rec, was, now); err != nil {
		return errors.Join(err, m.rescore(rec, now, was))
	}
	err = m.cfg.Executor.Update(ctx, protocol.UpdateRequest{ID: rec.ID, Resources: resources})
	if err != nil && !unknown(err) {
		err = errors.Join(err, m.rescore(rec, now, was))
	}
	return err
}

// rescore gives the container's processes another oom_score_adj. One that has set its own keeps it.
func (m *Manager) rescore(rec *container.Record, was, now int) error {
	if was == now {
		return nil
	}
	sb, err := m.cfg.Sandboxes.Get(rec.SandboxID)
	if err != nil {
		return err
	}
	path := sb.CgroupOf(rec.ID)
	err = proc.AdjustOOMScores(func() ([]int, error) { return m.cfg.Cgroups.Processes(path) }, was, now)
	if err != nil {
		return fmt.Errorf("oom_score_adj: %w", err)
	}
	return nil
}
