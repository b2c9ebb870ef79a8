//go:build cgo

package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/cgroups"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/worker/bundle"
	"monopod.dev/monopod/internal/executor/worker/group"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/executor/worker/resources"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// update serves Update.
func (w *Worker) update(ctx context.Context, req protocol.UpdateRequest) error {
	if req.Resources == nil {
		return fmt.Errorf("%w: update of container %s: resources are missing", errdefs.ErrInvalidArgument, req.ID)
	}
	c, release, err := w.lockExisting(ctx, req.ID)
	if err != nil {
		return err
	}
	defer release()
	rec := c.snapshot()
	if err := rec.CheckContainer(); err != nil {
		return err
	}
	if rec.Exit != nil || rec.StartError != "" {
		return fmt.Errorf("%w: update of container %s: it has exited, or cannot be started", errdefs.ErrFailedPrecondition, req.ID)
	}
	v2 := cgroups.IsCgroup2UnifiedMode()
	if err := resources.Refused(req.Resources, v2); err != nil {
		return fmt.Errorf("%w: update of container %s: %w", errdefs.ErrInvalidArgument, req.ID, err)
	}
	if err := w.updateAll(context.WithoutCancel(ctx), c, rec, req.Resources, v2); err != nil {
		return fmt.Errorf("update of container %s: %w", req.ID, err)
	}
	return nil
}

// updateAll sets all that the change names, or nothing. The old values are stored first: should this worker die, its
// successor restores them, for nobody was told that they have changed.
func (w *Worker) updateAll(ctx context.Context, c *container, rec record.Record, change *specs.LinuxResources, v2 bool) error {
	old := rec.Resources
	if old == nil {
		spec, _, err := bundle.Load(rec.Bundle)
		if err != nil {
			return err
		}
		if old = spec.Linux.Resources; old == nil {
			old = &specs.LinuxResources{}
		}
	}
	next, err := resources.Merged(old, change)
	if err != nil {
		return err
	}
	next.Devices = nil // they are the bundle's, and never changed
	whole := resources.Completed(old, change, v2)
	hugepages := w.hugepages.Take(whole)
	res, err := resources.Translated(whole)
	if err != nil {
		return fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
	}
	if len(hugepages) > 0 { // before the values are read
		if err := w.hugepages.Prepare(rec.Cgroups); err != nil {
			return err
		}
	}
	before, err := rec.Group().Limits(change.Unified)
	if err != nil {
		return err
	}
	if err := w.change(c, func(r *record.Record) { r.Updating = before }); err != nil {
		return err
	}
	if err := failpoint.Hit("executor/worker/updating"); err != nil {
		return w.takeBack(c, before, err)
	}
	if err := w.hugepages.Limit(rec.Cgroups, hugepages); err != nil {
		return w.takeBack(c, before, err)
	}
	if err := w.starters.of(rec).update(ctx, rec, resourceChange{whole: whole, values: res, hugepages: next.HugepageLimits}); err != nil {
		return w.takeBack(c, before, classed(err))
	}
	if err := rec.Group().SetScope(res); err != nil {
		return w.takeBack(c, before, err)
	}
	if err := failpoint.Hit("executor/worker/updated"); err != nil {
		return w.takeBack(c, before, err)
	}
	if err := w.change(c, func(r *record.Record) { r.Updating, r.Resources = nil, next }); err != nil {
		return w.takeBack(c, before, err)
	}
	return nil
}

// takeBack restores the old values after an error, which it returns.
func (w *Worker) takeBack(c *container, before group.Limits, cause error) error {
	rec := c.snapshot()
	err := rec.Group().Restore(w.ctx, before)
	if err == nil {
		err = w.change(c, func(r *record.Record) { r.Updating = nil })
	}
	if err != nil { // the next worker tries again
		w.log.Error("resources of a container are half updated", "container", c.id, "error", err)
	}
	return errors.Join(cause, err)
}

// classed gives an error about a value its class. What is no error of the kernel is libcontainer's own finding, of a value
// or of a controller that is not there.
func classed(err error) error {
	switch {
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.ENODEV): // the memory is in use; the cgroup is gone
		return fmt.Errorf("%w: %w", errdefs.ErrFailedPrecondition, err)
	case errors.Is(err, unix.EIO), errors.Is(err, unix.ENOMEM):
		return err
	}
	return fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
}

// undoUpdate restores what the last worker was killed in the middle of changing.
func (w *Worker) undoUpdate(c *container) {
	if c.rec.Updating == nil {
		return
	}
	if err := c.rec.Group().Restore(w.ctx, c.rec.Updating); err != nil {
		w.log.Error("resources of a container are half updated", "container", c.id, "error", err)
		return
	}
	c.rec.Updating = nil
	if err := w.store.Put(c.rec); err != nil {
		w.log.Error("container record", "container", c.id, "error", err)
	}
}
