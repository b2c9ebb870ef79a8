package end

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/runtime/container"
)

// defaultKillBound is how long a process may take to end after SIGKILL. One that sits in an uninterruptible wait of the kernel
// takes longer; the caller is told, and may ask again.
const defaultKillBound = 10 * time.Second

// Stop asks the container to end and kills it after the grace. It returns when the container has ended; one that had
// ended is no error. Stops of one container run side by side: the shortest grace wins. Only the first of them sends the stop signal,
// because to many programs a second one means to give up at once. Of a container that was not started yet the process
// is killed that waits to become its program.
func (m *Ender) Stop(ctx context.Context, id ids.ContainerID, grace time.Duration) error {
	rec, err := m.cfg.Containers.Get(id)
	if err != nil {
		return err
	}
	e := m.cfg.Containers.Ending(id)
	if rec.Exit != nil || e == nil { // nil: it was removed meanwhile
		return nil
	}
	if rec.StartedAt.IsZero() {
		s, err := m.cfg.Executor.State(ctx, id)
		switch {
		case errdefs.IsNotFound(err):
			return nil
		case err != nil:
			return fmt.Errorf("stop container %s: %w", id, err)
		case s.Phase == protocol.Created && s.PID == 0:
			return nil // its program cannot be executed: there is no process, which Start would tell
		case s.Phase == protocol.Created:
			grace = 0
		}
		if err := m.cfg.Containers.Observe(s); err != nil {
			return err
		}
	}
	if grace > 0 {
		if err := m.ask(ctx, e, protocol.KillRequest{ID: id, Signal: rec.StopSignal}); err != nil {
			return fmt.Errorf("stop container %s: %w", id, err)
		}
		if err := failpoint.Hit("runtime/container-stop/asked"); err != nil {
			return err
		}
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-e.Exited():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
	}
	return m.kill(ctx, id, e.Exited())
}

// ask sends the stop signal, once.
func (m *Ender) ask(ctx context.Context, e *container.Ending, req protocol.KillRequest) error {
	if !e.Ask() {
		return nil
	}
	err := m.signal(ctx, req)
	if err != nil {
		e.NotAsked()
	}
	return err
}

// signal sends a signal, again if it is not known whether the executor's worker died before it sent it or after: one too many
// does less harm than none. A container that is gone is no error.
func (m *Ender) signal(ctx context.Context, req protocol.KillRequest) error {
	err := m.cfg.Executor.Kill(ctx, req)
	if errdefs.IsUnavailable(err) && ctx.Err() == nil {
		err = m.cfg.Executor.Kill(ctx, req)
	}
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// kill ends all processes of the container and waits for its end.
func (m *Ender) kill(ctx context.Context, id ids.ContainerID, exited <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.KillBound)
	defer cancel()
	if err := m.signal(ctx, protocol.KillRequest{ID: id, Signal: int(unix.SIGKILL), All: true}); err != nil {
		return fmt.Errorf("kill container %s: %w", id, err)
	}
	if err := failpoint.Hit("runtime/container-stop/killed"); err != nil {
		return err
	}
	select {
	case <-exited:
		return nil
	case <-ctx.Done():
	}
	// It has ended, perhaps, and that cannot be stored: then the error is another one.
	asked, cancelAsked := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancelAsked()
	if s, err := m.cfg.Executor.State(asked, id); err == nil && s.Phase == protocol.Exited {
		return m.cfg.Containers.Observe(s)
	}
	return fmt.Errorf("container %s has not ended after SIGKILL; a process of it may hang in the kernel: %w", id, ctx.Err())
}

// StopAll kills all containers of a sandbox, side by side. One that is just being created is waited for.
func (m *Ender) StopAll(ctx context.Context, sandboxID ids.SandboxID) error {
	return m.all(sandboxID, func(rec container.Record) error {
		if !rec.Visible() {
			if err := m.cfg.Containers.Do(ctx, rec.ID, func() error { return nil }); err != nil {
				return err
			}
		}
		if err := m.Stop(ctx, rec.ID, 0); err != nil && !errdefs.IsNotFound(err) {
			return err
		}
		return nil
	})
}

// RemoveAll removes all containers of a sandbox, those too that are half made or half removed.
func (m *Ender) RemoveAll(ctx context.Context, sandboxID ids.SandboxID) error {
	return m.all(sandboxID, func(rec container.Record) error { return m.Remove(ctx, rec.ID) })
}

// all calls f for all containers of a sandbox at once and returns their errors.
func (m *Ender) all(sandboxID ids.SandboxID, f func(container.Record) error) error {
	recs := m.cfg.Containers.AllInSandbox(sandboxID)
	errs := make([]error, len(recs))
	var wg sync.WaitGroup
	for i, rec := range recs {
		wg.Go(func() { errs[i] = f(rec) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Remove kills the container if it runs and forgets it. It is idempotent, and finishes what an earlier Remove could not.
func (m *Ender) Remove(ctx context.Context, id ids.ContainerID) error {
	return m.cfg.Containers.Do(ctx, id, func() error {
		rec, ok := m.cfg.Containers.Lookup(id)
		if !ok {
			return nil
		}
		e := m.cfg.Containers.Ending(id)
		// One that was not started is killed by its deletion.
		if rec.Visible() && rec.Exit == nil && !rec.StartedAt.IsZero() {
			if err := m.kill(ctx, id, e.Exited()); err != nil {
				return err
			}
		}
		if err := failpoint.Hit("runtime/container-remove/ended"); err != nil {
			return err
		}
		if rec.Visible() {
			var err error
			if rec, err = m.cfg.Containers.Modify(id, func(r *container.Record) bool { r.Removing = true; return true }); err != nil {
				return err
			}
		}
		if err := failpoint.Hit("runtime/container-remove/persisted"); err != nil {
			return err
		}
		if err := m.Erase(ctx, &rec); err != nil {
			return err
		}
		if err := failpoint.Hit("runtime/container-remove/erased"); err != nil {
			return err
		}
		if err := m.cfg.Containers.Forget(id); err != nil {
			return err
		}
		return failpoint.Hit("runtime/container-remove/forgotten")
	})
}

// Erase removes all that a container has on the host, in the reverse order of its making. It may be repeated.
func (m *Ender) Erase(ctx context.Context, rec *container.Record) error {
	err := m.cfg.Executor.Delete(ctx, rec.ID)
	if errdefs.IsFailedPrecondition(err) { // it runs, which an event has yet to tell
		err = m.end(ctx, rec.ID)
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("delete container %s: %w", rec.ID, m.cfg.CDI.WithHooks(rec.Config(), err))
	}
	if err := failpoint.Hit("runtime/container-remove/deleted"); err != nil {
		return err
	}
	if err := m.clearCgroup(rec); err != nil {
		return fmt.Errorf("delete container %s: %w", rec.ID, err)
	}
	// The folders are emptied only when nothing is mounted in them any more.
	if err := mount.UnmountBelow(m.cfg.Folders.Bundle(rec.ID)); err != nil {
		return err
	}
	if err := failpoint.Hit("runtime/container-remove/unmounted"); err != nil {
		return err
	}
	// The layer may be as large as the container has made it: nobody waits for its removal.
	errs := []error{tree.Remove(ctx, m.cfg.Folders.Bundle(rec.ID)), m.cfg.Bin.Throw(ctx, m.cfg.Folders.Written(rec.ID))}
	for _, image := range rec.Images() {
		if err := m.cfg.Images.Unpin(ctx, image, rec.ID); err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
