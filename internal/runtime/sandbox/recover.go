package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/host/ns"
	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/kit/ids"
)

// Recover makes the records and the host agree after a restart of monopod, a crash or a reboot: half made sandboxes are
// undone, those of an earlier boot are not ready, and folders and mounts that no record knows are removed. A sandbox that is not
// ready gives back what it holds only when nothing can run in it any more. It returns the network namespaces of the
// sandboxes that hold their addresses, by id; empty where the namespace is not to be found or is to be left as it is.
func (m *Manager) Recover(ctx context.Context) (live map[ids.SandboxID]string, err error) {
	live = map[ids.SandboxID]string{}
	errs := []error{m.cfg.Records.Restore()}
	for id, rec := range m.cfg.Records.all() {
		if rec.Ready() && rec.Updated != nil && rec.BootID == m.cfg.BootID {
			errs = append(errs, m.limit(&rec)) // a crash may have come before the kernel had heard of it
		}
		switch {
		case rec.ReadyAt.IsZero():
			m.cfg.Log.Info("undoing a sandbox that was half made", "sandbox", id)
			errs = append(errs, m.undo(ctx, &rec))
		case rec.BootID != m.cfg.BootID && rec.ReclaimedAt.IsZero():
			m.cfg.Log.Info("the machine was rebooted: the sandbox is not ready", "sandbox", id)
			errs = append(errs, m.ended(ctx, rec))
		case rec.Ready() && !rec.HostNetwork():
			pinned, err := ns.Pinned(m.cfg.Folders.namespaces(id), ns.Network)
			switch {
			case err != nil:
				errs = append(errs, err)
				fallthrough // it is not known to be gone
			case pinned:
				live[id] = ns.Path(m.cfg.Folders.namespaces(id), ns.Network)
			default:
				m.cfg.Log.Warn("the sandbox's network namespace is gone: the sandbox is not ready", "sandbox", id)
				errs = append(errs, m.halfEnded(ctx, rec, live))
			}
		case !rec.Ready() && rec.ReclaimedAt.IsZero():
			errs = append(errs, m.halfEnded(ctx, rec, live))
		}
	}
	errs = append(errs, m.recoverInits(ctx))
	return live, errors.Join(append(errs, m.sweep(ctx, live))...)
}

// ended takes down that a sandbox is not ready any more, and gives back what it held.
func (m *Manager) ended(ctx context.Context, rec Record) error {
	err := m.reclaim(ctx, &rec)
	_, stored := m.cfg.Records.Modify(rec.ID, func(r *Record) bool {
		changed := r.stopped()
		if err == nil {
			r.ReclaimedAt = time.Now()
		}
		return changed || err == nil
	})
	return errors.Join(err, stored)
}

// halfEnded does what ended does, unless containers of the sandbox may run on: then the sandbox keeps its address, which they use,
// until a Stop has ended them.
func (m *Manager) halfEnded(ctx context.Context, rec Record, live map[ids.SandboxID]string) error {
	if !m.cfg.Containers.MayRun(rec.ID) {
		return m.ended(ctx, rec)
	}
	if !rec.HostNetwork() {
		live[rec.ID] = ""
	}
	m.cfg.Log.Warn("a sandbox that is not ready has containers that may run on; it keeps its address until it is stopped", "sandbox", rec.ID)
	_, err := m.cfg.Records.Modify(rec.ID, (*Record).stopped)
	return err
}

// sweep removes folders of sandboxes that are in no record: a crash came between the two steps of a removal. Those whose record cannot be
// read are left as they are, and their living network namespaces added to live: nothing that lives is dropped.
func (m *Manager) sweep(ctx context.Context, live map[ids.SandboxID]string) error {
	entries, err := os.ReadDir(m.cfg.Folders.Root)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	known := m.cfg.Records.all()
	var errs []error
	for _, e := range entries {
		id, dir := ids.SandboxID(e.Name()), filepath.Join(m.cfg.Folders.Root, e.Name())
		if _, ok := known[id]; ok {
			continue
		}
		if m.cfg.Records.Unread(id) {
			m.cfg.Log.Error("a sandbox's folder is in no record that can be read; it is left as it is", "sandbox", id)
			pinned, err := ns.Pinned(m.cfg.Folders.namespaces(id), ns.Network)
			if pinned {
				live[id] = ns.Path(m.cfg.Folders.namespaces(id), ns.Network)
			}
			errs = append(errs, err)
			continue
		}
		m.cfg.Log.Info("removing the folder of a sandbox that is gone", "folder", dir)
		if err := mount.UnmountBelow(dir); err != nil {
			errs = append(errs, fmt.Errorf("sandbox folder %s: %w", dir, err))
			continue
		}
		errs = append(errs, tree.Remove(ctx, dir))
	}
	return errors.Join(errs...)
}
