//go:build cgo

package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// delete serves Delete. A container that was created and never started is killed first.
func (w *Worker) delete(ctx context.Context, id string) error {
	c, release, err := w.lockExisting(ctx, id)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer release()
	rec := c.snapshot()
	switch {
	case rec.Phase() == protocol.Running:
		return fmt.Errorf("%w: container %s runs (pid %d); kill it first", errdefs.ErrFailedPrecondition, id, rec.PID)
	case rec.Phase() == protocol.Created && rec.StartError == "":
		if err := rec.Group().Kill(ctx, unix.SIGKILL); err != nil {
			return err
		}
		select {
		case <-c.exited:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := w.deleteEnded(context.WithoutCancel(ctx), c); err != nil {
		return fmt.Errorf("delete container %s: %w", id, err)
	}
	return nil
}

// deleteEnded removes all that is left of a container whose process has ended. Each step may find itself done already.
func (w *Worker) deleteEnded(ctx context.Context, c *container) error {
	if err := w.change(c, func(r *record.Record) { r.Stage = record.StageDeleting }); err != nil {
		return err
	}
	if err := failpoint.Hit("executor/worker/deleting"); err != nil {
		return err
	}
	rec := c.snapshot()
	if err := w.removeRemains(ctx, rec); err != nil {
		return err
	}
	c.mu.Lock()
	io, status := c.io, c.status
	c.io, c.status = nil, nil
	c.mu.Unlock()
	if status != nil {
		status.Close()
	}
	if io != nil {
		io.Close()
	}
	err := errors.Join(w.keeper.Release(ctx, containerKey(c.id)), w.journal.Remove(rec.PID, rec.StartTime), w.store.Remove(c.id))
	if err != nil {
		return err
	}
	w.forget(c)
	w.hub.publish(c.id, protocol.Event{Deleted: c.id})
	return nil
}

// shutdown serves Shutdown.
func (w *Worker) shutdown(ctx context.Context, req protocol.ShutdownRequest) (err error) {
	w.mu.Lock()
	w.closing = true
	w.mu.Unlock()
	defer func() {
		if err != nil {
			w.mu.Lock()
			w.closing = false
			w.mu.Unlock()
		}
	}()
	for _, c := range w.all() {
		release, err := c.take(ctx)
		if err != nil {
			return err
		}
		rec := c.snapshot()
		release()
		if c.present() != nil || rec.Exit != nil || rec.StartError != "" {
			continue
		}
		if !req.Kill {
			return fmt.Errorf("%w: container %s is there (%s); delete it, or ask to kill", errdefs.ErrFailedPrecondition, c.id, rec.Phase())
		}
		if err := rec.Group().Kill(ctx, unix.SIGKILL); err != nil {
			return err
		}
		select {
		case <-c.exited:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := w.keeper.Shutdown(ctx); err != nil {
		return err
	}
	w.log.Info("shutting down")
	w.stop()
	return nil
}
