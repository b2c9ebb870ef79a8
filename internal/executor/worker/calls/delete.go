//go:build cgo

package calls

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/ids"
)

// delete serves Delete. A container that was created and never started is killed first.
func (cs *Calls) delete(ctx context.Context, id ids.ContainerID) error {
	c, release, err := cs.cfg.Table.Lock(ctx, id)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer release()
	rec := c.Record()
	switch {
	case rec.Phase() == protocol.Running:
		return fmt.Errorf("%w: container %s runs (pid %d); kill it first", errdefs.ErrFailedPrecondition, id, rec.PID)
	case rec.Phase() == protocol.Created && rec.StartError == "":
		if err := rec.Group().Kill(ctx, unix.SIGKILL); err != nil {
			return err
		}
		select {
		case <-c.Exited():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := cs.cfg.Life.Delete(context.WithoutCancel(ctx), c); err != nil {
		return fmt.Errorf("delete container %s: %w", id, err)
	}
	return nil
}

// shutdown serves Shutdown.
func (cs *Calls) shutdown(ctx context.Context, req protocol.ShutdownRequest) (err error) {
	cs.cfg.Table.Close()
	defer func() {
		if err != nil {
			cs.cfg.Table.Open()
		}
	}()
	for _, c := range cs.cfg.Table.All() {
		release, err := c.Take(ctx)
		if err != nil {
			return err
		}
		rec := c.Record()
		release()
		if c.Present() != nil || rec.Exit != nil || rec.StartError != "" {
			continue
		}
		if !req.Kill {
			return fmt.Errorf("%w: container %s is there (%s); delete it, or ask to kill", errdefs.ErrFailedPrecondition, c.ID, rec.Phase())
		}
		if err := rec.Group().Kill(ctx, unix.SIGKILL); err != nil {
			return err
		}
		select {
		case <-c.Exited():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := cs.cfg.Shutdown(ctx); err != nil {
		return err
	}
	cs.cfg.Log.Info("shutting down")
	cs.cfg.End()
	return nil
}
