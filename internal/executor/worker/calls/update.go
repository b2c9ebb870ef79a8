//go:build cgo

package calls

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
	"monopod.dev/monopod/internal/executor/worker/engine"
	"monopod.dev/monopod/internal/executor/worker/group"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/executor/worker/resources"
	"monopod.dev/monopod/internal/executor/worker/table"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// update serves Update.
func (cs *Calls) update(ctx context.Context, req protocol.UpdateRequest) error {
	if req.Resources == nil {
		return fmt.Errorf("%w: update of container %s: resources are missing", errdefs.ErrInvalidArgument, req.ID)
	}
	c, release, err := cs.cfg.Table.Lock(ctx, req.ID)
	if err != nil {
		return err
	}
	defer release()
	rec := c.Record()
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
	if err := cs.updateAll(context.WithoutCancel(ctx), c, rec, req.Resources, v2); err != nil {
		return fmt.Errorf("update of container %s: %w", req.ID, err)
	}
	return nil
}

// updateAll sets all that the change names, or nothing. The old values are stored first: should this worker die, its
// successor restores them, for nobody was told that they have changed.
func (cs *Calls) updateAll(ctx context.Context, c *table.Container, rec record.Record, change *specs.LinuxResources, v2 bool) error {
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
	hugepages := cs.cfg.Hugepages.Take(whole)
	res, err := resources.Translated(whole)
	if err != nil {
		return fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
	}
	if len(hugepages) > 0 { // before the values are read
		if err := cs.cfg.Hugepages.Prepare(rec.Cgroups); err != nil {
			return err
		}
	}
	before, err := rec.Group().Limits(change.Unified)
	if err != nil {
		return err
	}
	if err := cs.cfg.Table.Change(c, func(r *record.Record) { r.Updating = before }); err != nil {
		return err
	}
	if err := failpoint.Hit("executor/worker/updating"); err != nil {
		return cs.takeBack(c, before, err)
	}
	if err := cs.cfg.Hugepages.Limit(rec.Cgroups, hugepages); err != nil {
		return cs.takeBack(c, before, err)
	}
	if err := cs.cfg.Engines.Of(rec).Update(ctx, rec, engine.Change{Whole: whole, Values: res, Hugepages: next.HugepageLimits}); err != nil {
		return cs.takeBack(c, before, classed(err))
	}
	if err := rec.Group().SetScope(res); err != nil {
		return cs.takeBack(c, before, err)
	}
	if err := failpoint.Hit("executor/worker/updated"); err != nil {
		return cs.takeBack(c, before, err)
	}
	if err := cs.cfg.Table.Change(c, func(r *record.Record) { r.Updating, r.Resources = nil, next }); err != nil {
		return cs.takeBack(c, before, err)
	}
	return nil
}

// takeBack restores the old values after an error, which it returns.
func (cs *Calls) takeBack(c *table.Container, before group.Limits, cause error) error {
	rec := c.Record()
	err := rec.Group().Restore(cs.cfg.Ctx, before)
	if err == nil {
		err = cs.cfg.Table.Change(c, func(r *record.Record) { r.Updating = nil })
	}
	if err != nil { // the next worker tries again
		cs.cfg.Log.Error("resources of a container are half updated", "container", c.ID, "error", err)
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
