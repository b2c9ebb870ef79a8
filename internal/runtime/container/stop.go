package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/host/mount"
)

// killBound is how long a process may take to end after SIGKILL. One that sits in an uninterruptible wait of the kernel
// takes longer; the caller is told, and may ask again.
const killBound = 10 * time.Second

// Stop asks the container to end and kills it after the grace. It returns when the container has ended; one that had
// ended is no error. Stops of one container run side by side: the shortest grace wins.
func (m *Manager) Stop(ctx context.Context, id string, grace time.Duration) error {
	rec, exited, err := m.get(id)
	if err != nil {
		return err
	}
	if rec.Exit != nil {
		return nil
	}
	if grace > 0 && !rec.StartedAt.IsZero() {
		if err := m.cfg.Executor.Kill(ctx, protocol.KillRequest{ID: id, Signal: rec.StopSignal}); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("stop container %s: %w", id, err)
		}
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-exited:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
	}
	return m.kill(ctx, id, exited)
}

// kill ends all processes of the container and waits for its end.
func (m *Manager) kill(ctx context.Context, id string, exited <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, killBound)
	defer cancel()
	if err := m.cfg.Executor.Kill(ctx, protocol.KillRequest{ID: id, Signal: int(unix.SIGKILL), All: true}); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("kill container %s: %w", id, err)
	}
	select {
	case <-exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("container %s has not ended after SIGKILL; a process of it may hang in the kernel: %w", id, ctx.Err())
	}
}

// StopAll kills all containers of a sandbox.
func (m *Manager) StopAll(ctx context.Context, sandboxID string) error {
	var errs []error
	for _, rec := range m.InSandbox(sandboxID) {
		if err := m.Stop(ctx, rec.ID, 0); err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// RemoveAll removes all containers of a sandbox.
func (m *Manager) RemoveAll(ctx context.Context, sandboxID string) error {
	var errs []error
	for _, rec := range m.list(func(r *Record) bool { return r.SandboxID == sandboxID }) {
		errs = append(errs, m.Remove(ctx, rec.ID))
	}
	return errors.Join(errs...)
}

// Remove kills the container if it runs and forgets it. It is idempotent, and finishes what an earlier Remove could not.
func (m *Manager) Remove(ctx context.Context, id string) error {
	return m.flight.One(ctx, id, func() error {
		before, exited, err := m.get(id)
		if errdefs.IsNotFound(err) && !m.hidden(id) {
			return nil
		}
		wasVisible := err == nil
		if wasVisible && before.Exit == nil {
			if err := m.kill(ctx, id, exited); err != nil {
				return err
			}
		}
		rec, err := m.modify(id, func(r *Record) bool { r.Removing = true; return wasVisible })
		if err != nil {
			return err
		}
		if err := m.erase(ctx, &rec); err != nil {
			return err
		}
		if err := m.forget(id); err != nil {
			return err
		}
		if wasVisible {
			m.cfg.Listener.ContainerRemoved(rec)
		}
		return nil
	})
}

// erase removes all that a container has on the host, in the reverse order of its making. It may be repeated.
func (m *Manager) erase(ctx context.Context, rec *Record) error {
	if err := m.cfg.Executor.Delete(ctx, rec.ID); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("delete container %s: %w", rec.ID, err)
	}
	// The folders are emptied only when nothing is mounted in them any more.
	if err := mount.UnmountBelow(m.Bundle(rec.ID)); err != nil {
		return err
	}
	errs := []error{os.RemoveAll(m.Bundle(rec.ID)), os.RemoveAll(m.layer(rec.ID))}
	if rec.ImageID != "" {
		if err := m.cfg.Images.Unpin(ctx, rec.ImageID, rec.ID); err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// ReopenLog makes the executor write into a new log file; the old one has been moved by the caller.
func (m *Manager) ReopenLog(ctx context.Context, id string) error {
	rec, err := m.Get(id)
	if err != nil {
		return err
	}
	if rec.Exit != nil || rec.StartedAt.IsZero() {
		return fmt.Errorf("container %s is %s; only a running one writes a log: %w", id, rec.State(), errdefs.ErrFailedPrecondition)
	}
	return m.cfg.Executor.ReopenLog(ctx, id)
}
