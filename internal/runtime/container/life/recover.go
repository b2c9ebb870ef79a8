package life

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/runtime/container"
)

// unknownExit is what is said of a container whose end nobody saw: it is not known how it ended, and nothing is made up.
func unknownExit(message string) *protocol.Exit {
	return &protocol.Exit{Code: 255, At: time.Now(), Reason: protocol.ReasonUnknown, Message: message}
}

// Recover makes the records, the executor and the host agree after a restart of monopod, a crash or a reboot. What was half
// made is undone, what was half removed is removed, exits that happened meanwhile are taken in, and what the
// executor or the host holds without a record is ended. What runs goes on.
func (m *Manager) Recover(ctx context.Context) error {
	held, err := m.cfg.Executor.List(ctx)
	if err != nil {
		return fmt.Errorf("ask the executor for its containers: %w", err)
	}
	states := map[ids.ContainerID]protocol.ContainerState{}
	for _, s := range held {
		if s.Kind == "" { // the sandboxes look after their inits
			states[s.ID] = s
		}
	}
	errs := []error{m.cfg.Containers.Restore()}
	for _, rec := range m.cfg.Containers.All() {
		errs = append(errs, m.recoverOne(ctx, rec, states))
		delete(states, rec.ID)
	}
	for id := range states {
		// Nothing that lives is dropped with its record.
		if m.cfg.Containers.Unread(id) {
			m.cfg.Log.Error("a container of the executor is in no record that can be read; it is left as it is", "container", id)
			continue
		}
		m.cfg.Log.Warn("ending a container of the executor that is in no record", "container", id)
		errs = append(errs, m.cfg.Ends.End(ctx, id, ""))
	}
	return errors.Join(append(errs, m.unpin(ctx), m.sweep(ctx, m.cfg.Folders.Bundles, tree.Remove), m.sweep(ctx, m.cfg.Folders.Layers, m.cfg.Bin.Throw))...)
}

// unpin lets go of the images that containers without a record hold: a crash came between the two steps of a removal.
func (m *Manager) unpin(ctx context.Context) error {
	pins, err := m.cfg.Images.Pins(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for user, images := range pins {
		_, known := m.cfg.Containers.Lookup(user)
		for _, id := range images {
			if !known && !m.cfg.Containers.Unread(user) {
				errs = append(errs, m.cfg.Images.Unpin(ctx, id, user))
			}
		}
	}
	return errors.Join(errs...)
}

func (m *Manager) recoverOne(ctx context.Context, rec container.Record, states map[ids.ContainerID]protocol.ContainerState) error {
	s, known := states[rec.ID]
	switch {
	case !rec.Visible():
		m.cfg.Log.Info("removing a container that was half made or half removed", "container", rec.ID)
		if known {
			if err := m.cfg.Ends.End(ctx, rec.ID, ""); err != nil {
				return err
			}
		}
		if err := m.cfg.Ends.Erase(ctx, &rec); err != nil {
			return err // its record stays, so that the next start finds it
		}
		return m.cfg.Containers.Forget(rec.ID)
	case known:
		if err := m.cfg.Containers.Observe(s); err != nil || rec.Pending == nil {
			return err
		}
		rec, err := m.cfg.Containers.Get(rec.ID)
		if err != nil {
			return err
		}
		m.cfg.Log.Info("finishing an update of a container's resources", "container", rec.ID)
		_, err = m.settle(ctx, rec)
		return err
	case rec.Exit == nil:
		message := "the executor does not know the container any more"
		if rec.BootID != m.cfg.BootID {
			message = "the machine was rebooted while the container ran"
		}
		return m.lost(rec.ID, message)
	}
	return nil
}

// lost takes down that a container is gone and nobody saw how.
func (m *Manager) lost(id ids.ContainerID, message string) error {
	m.cfg.Log.Warn("a container has ended unseen", "container", id, "why", message)
	return m.cfg.Containers.Observe(protocol.ContainerState{ID: id, Phase: protocol.Exited, Exit: unknownExit(message)})
}

// sweep has the folders in dir removed of containers that are in no record.
func (m *Manager) sweep(ctx context.Context, dir string, remove func(ctx context.Context, path string) error) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		id := ids.ContainerID(e.Name())
		if _, known := m.cfg.Containers.Lookup(id); known || m.cfg.Containers.Unread(id) || e.Name() == tree.BinName {
			continue
		}
		path := filepath.Join(dir, e.Name())
		m.cfg.Log.Info("removing the folder of a container that is gone", "folder", path)
		if err := mount.UnmountBelow(path); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, remove(ctx, path))
	}
	return errors.Join(errs...)
}
