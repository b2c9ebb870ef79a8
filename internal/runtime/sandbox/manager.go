// Package sandbox holds the pod sandboxes of the runtime: namespaces that no process holds, the pod's files and shared memory,
// its address, its cgroup.
//
// Every method is safe for concurrent use. Operations on one sandbox happen one after another; a repeated Run joins the
// one under way. Intent is stored before the first side effect and the result before it is published, so that Recover can
// finish or undo what a crash has interrupted.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/runtime/flight"
	"monopod.dev/monopod/internal/runtime/stored"
	"monopod.dev/monopod/internal/state"
)

// Network connects sandboxes; see package network for what is promised.
type Network interface {
	Setup(ctx context.Context, req network.Request) (network.Result, error)
	Teardown(ctx context.Context, sandboxID string) error
}

// Containers ends what runs in a sandbox that is stopped.
type Containers interface {
	// StopAll kills all containers of the sandbox and returns when they have ended.
	StopAll(ctx context.Context, sandboxID string) error
	// RemoveAll removes them.
	RemoveAll(ctx context.Context, sandboxID string) error
}

// Listener hears of changes after they are stored.
type Listener interface {
	SandboxStarted(Record)
	SandboxStopped(Record)
	SandboxRemoved(Record)
}

// Config is what a Manager works with.
type Config struct {
	// Dir holds a folder a sandbox, for this boot.
	Dir string
	// CgroupParent is where the cgroup of a sandbox is made whose configuration names none.
	CgroupParent string
	BootID       string
	Cgroups      *cgroup.Host
	DB           *state.DB
	Network      Network
	Containers   Containers
	Listener     Listener
	Log          *slog.Logger
}

// Manager holds all sandboxes.
type Manager struct {
	cfg    Config
	table  state.Table[Record]
	flight flight.Group

	// damaged: the table holds records that cannot be read. What is in no record then may be in one of those.
	damaged bool
	// restored are the records that were taken from their copies; Recover stores them.
	restored []Record

	mu   sync.RWMutex
	recs map[string]Record // by id; what is stored, and nothing else
}

// NewManager reads the stored sandboxes. Call Recover before anything else.
func NewManager(cfg Config) (*Manager, error) {
	m := &Manager{cfg: cfg, table: state.NewTable[Record](cfg.DB, "sandboxes")}
	recs, err := m.table.List()
	if err != nil {
		m.damaged = true
		cfg.Log.Error("some stored sandboxes cannot be read; what lives of them goes on", "error", err)
	}
	m.recs = recs
	copies, err := stored.ReadCopies[Record](cfg.Dir)
	if err != nil {
		cfg.Log.Error("some copies of sandboxes' records cannot be read", "error", err)
	}
	for id, rec := range copies {
		if _, ok := recs[id]; !ok && rec.ID == id {
			cfg.Log.Warn("the record of a sandbox was lost, it is taken from its copy", "sandbox", id)
			m.recs[id] = rec
			m.restored = append(m.restored, rec)
		}
	}
	return m, nil
}

// Get returns a sandbox that clients may know of, by its id, else errdefs.ErrNotFound.
func (m *Manager) Get(id string) (Record, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	rec, ok := m.recs[id]
	if !ok || rec.ReadyAt.IsZero() {
		return Record{}, fmt.Errorf("sandbox %q: %w", id, errdefs.ErrNotFound)
	}
	return rec, nil
}

// List returns the sandboxes that clients may know of, the oldest first.
func (m *Manager) List() []Record {
	m.mu.RLock()
	all := make([]Record, 0, len(m.recs))
	for _, rec := range m.recs {
		if !rec.ReadyAt.IsZero() {
			all = append(all, rec)
		}
	}
	m.mu.RUnlock()
	sort.Slice(all, func(i, j int) bool { return all[i].CreatedAt.Before(all[j].CreatedAt) })
	return all
}

// Dir is a sandbox's folder.
func (m *Manager) Dir(id string) string { return filepath.Join(m.cfg.Dir, id) }

// store makes a record durable, then visible.
func (m *Manager) store(rec Record) error {
	if err := m.table.Put(rec.ID, rec); err != nil {
		return fmt.Errorf("store sandbox %s: %w", rec.ID, err)
	}
	m.mu.Lock()
	m.recs[rec.ID] = rec
	m.mu.Unlock()
	if rec.ReadyAt.IsZero() {
		return nil
	}
	if err := stored.WriteCopy(m.Dir(rec.ID), rec); err != nil && !os.IsNotExist(err) {
		m.cfg.Log.Warn("the record of a sandbox could not be copied", "sandbox", rec.ID, "error", err)
	}
	return nil
}

func (m *Manager) forget(id string) error {
	if err := m.table.Delete(id); err != nil {
		return fmt.Errorf("delete sandbox %s: %w", id, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.recs, id)
	return nil
}

// Stop ends what runs in the sandbox and gives its network and namespaces back. It is idempotent, and does what an earlier
// Stop could not finish.
func (m *Manager) Stop(ctx context.Context, id string) error {
	return m.flight.One(ctx, id, func() error { return m.stop(ctx, id) })
}

func (m *Manager) stop(ctx context.Context, id string) error {
	rec, err := m.Get(id)
	if err != nil {
		return err
	}
	if !rec.ReclaimedAt.IsZero() {
		return nil
	}
	// It is not ready before its containers are looked for: from here on none can be created or started in it.
	if rec.StoppedAt.IsZero() {
		rec.StoppedAt = time.Now()
		if err := m.store(rec); err != nil {
			return err
		}
	}
	if err := m.cfg.Containers.StopAll(ctx, id); err != nil {
		return err
	}
	if err := m.reclaim(ctx, &rec); err != nil {
		return err
	}
	rec.ReclaimedAt = time.Now()
	if err := m.store(rec); err != nil {
		return err
	}
	m.cfg.Listener.SandboxStopped(rec)
	return nil
}

// Remove stops the sandbox and forgets it, with its containers. It is idempotent.
func (m *Manager) Remove(ctx context.Context, id string) error {
	return m.flight.One(ctx, id, func() error {
		rec, ok := m.snapshot()[id]
		if !ok {
			return nil
		}
		if rec.ReadyAt.IsZero() { // its Run could not undo it
			return m.undo(ctx, &rec)
		}
		if err := m.stop(ctx, id); err != nil {
			return err
		}
		if err := m.cfg.Containers.RemoveAll(ctx, id); err != nil {
			return err
		}
		rec, err := m.Get(id)
		if err != nil {
			return err
		}
		if err := m.erase(&rec); err != nil {
			return err
		}
		if err := m.forget(id); err != nil {
			return err
		}
		m.cfg.Listener.SandboxRemoved(rec)
		return nil
	})
}

// RemoveEverything removes all sandboxes, those too that are half made.
func (m *Manager) RemoveEverything(ctx context.Context) error {
	var errs []error
	for id := range m.snapshot() {
		errs = append(errs, m.Remove(ctx, id))
	}
	return errors.Join(errs...)
}
