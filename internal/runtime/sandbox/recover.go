package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"monopod.dev/monopod/internal/host/mount"
)

// Recover makes the records and the host agree after a restart of monopod, a crash or a reboot: half made sandboxes are
// undone, those of an earlier boot are not ready, and folders and mounts that no record knows are removed. It returns the
// network namespaces of the live sandboxes, by id.
func (m *Manager) Recover(ctx context.Context) (live map[string]string, err error) {
	live = map[string]string{}
	var errs []error
	for id, rec := range m.snapshot() {
		switch {
		case rec.ReadyAt.IsZero():
			m.cfg.Log.Info("undoing a sandbox that was half made", "sandbox", id)
			errs = append(errs, m.reclaim(ctx, &rec), m.erase(&rec), m.forget(id))
		case rec.BootID != m.cfg.BootID && rec.ReclaimedAt.IsZero():
			m.cfg.Log.Info("the machine was rebooted: the sandbox is not ready", "sandbox", id)
			if rec.StoppedAt.IsZero() {
				rec.StoppedAt = time.Now()
			}
			errs = append(errs, m.reclaim(ctx, &rec), m.store(rec))
		case rec.Ready() && !rec.HostNetwork():
			live[id] = filepath.Join(m.nsDir(id), "net")
		}
	}
	return live, errors.Join(append(errs, m.sweep())...)
}

func (m *Manager) snapshot() map[string]Record {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := make(map[string]Record, len(m.recs))
	for id, rec := range m.recs {
		all[id] = rec
	}
	return all
}

// sweep removes folders of sandboxes that are in no record: a crash came between the two steps of a removal.
func (m *Manager) sweep() error {
	entries, err := os.ReadDir(m.cfg.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	known := m.snapshot()
	var errs []error
	for _, e := range entries {
		if _, ok := known[e.Name()]; ok {
			continue
		}
		dir := filepath.Join(m.cfg.Dir, e.Name())
		m.cfg.Log.Info("removing the folder of a sandbox that is gone", "folder", dir)
		if err := mount.UnmountBelow(dir); err != nil {
			errs = append(errs, fmt.Errorf("sandbox folder %s: %w", dir, err))
			continue
		}
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}
