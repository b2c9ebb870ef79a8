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
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/ns"
	"monopod.dev/monopod/internal/host/private"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/keyed"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/ocispec"
	"monopod.dev/monopod/internal/runtime/abandon"
	"monopod.dev/monopod/internal/runtime/records"
	"monopod.dev/monopod/internal/state"
)

// Network connects sandboxes; see package network for what is promised.
type Network interface {
	Setup(ctx context.Context, req network.Request) (network.Result, error)
	Teardown(ctx context.Context, sandboxID string) error
}

// Preparer is a Network that can take down what a sandbox will have while its namespace is being made, so that Setup needs not wait for
// the disk. What cannot be prepared is Setup's to do, and its errors Setup's to return. Teardown gives back what was prepared.
type Preparer interface {
	Prepare(ctx context.Context, req network.Request)
}

// Containers ends what runs in a sandbox that is stopped.
type Containers interface {
	// StopAll kills all containers of the sandbox and returns when they have ended.
	StopAll(ctx context.Context, sandboxID string) error
	// RemoveAll removes them.
	RemoveAll(ctx context.Context, sandboxID string) error
	// End ends and deletes what the executor holds under an id that is no container's, and removes its cgroup, if given, with
	// what runs in it. One that is gone is no error.
	End(ctx context.Context, id, cgroup string) error
	// Any says whether there is one.
	Any(sandboxID string) bool
	// MayRun says whether there is one, those too that clients do not know of, whose end is not known.
	MayRun(sandboxID string) bool
}

// Listener hears of changes after they are stored.
type Listener interface {
	SandboxStarted(Record)
	SandboxStopped(Record)
	SandboxRemoved(Record)
}

// Config is what a Manager works with.
type Config struct {
	// Dir holds a folder a sandbox, for this boot. Beside it are the folders of the containers.
	Dir string
	// CgroupParent is where the cgroup of a sandbox is made whose configuration names none.
	CgroupParent string
	// Systemd: systemd makes the cgroups of sandboxes that are run from now on.
	Systemd    bool
	BootID     string
	Cgroups    *cgroup.Host
	DB         *state.DB
	Network    Network
	Executor   Executor
	Containers Containers
	Listener   Listener
	Host       ocispec.Host
	// PrivilegedPorts: to listen below port 1024, and to ping, takes a capability in a pod as it does on the host, unless its sysctls say otherwise.
	PrivilegedPorts bool
	// AbandonAfter is how long a sandbox stays whose client has gone before the answer; 0 is abandon.Default.
	AbandonAfter time.Duration
	Log          *slog.Logger
}

// Manager holds all sandboxes.
type Manager struct {
	cfg    Config
	table  state.Table[Record]
	making abandon.Group      // what is being created
	ops    keyed.Lock[string] // by id: the operations on one come one after another
	given  *abandon.Ledger    // what clients have given up
	procfs ns.Procfs          // for the sysctls of sandboxes
	apart  bool               // the folders of sandboxes have a mount of their own

	unread records.Unread // records that are there, and cannot be read
	// restored are the records that were taken from their copies; Recover stores them.
	restored []Record

	lendMu sync.Mutex // held to change the file of a sandbox's lent interfaces

	mu   sync.RWMutex
	recs known
	// levels are those of SELinux which sandboxes have whose records are not stored yet; the sandboxes' ids by level.
	levels map[string]string
}

// NewManager reads the stored sandboxes. Call Recover before anything else.
func NewManager(cfg Config) (*Manager, error) {
	m := &Manager{cfg: cfg, table: state.NewTable[Record](cfg.DB, "sandboxes"), levels: map[string]string{}}
	recs, err := m.table.List()
	if err != nil {
		m.unread = records.UnreadOf(err)
		cfg.Log.Error("some stored sandboxes cannot be read; what lives of them goes on", "error", err)
	}
	for _, rec := range recs {
		m.recs.put(rec)
	}
	if err := private.Dir(cfg.Dir); err != nil {
		return nil, err
	}
	if err := errors.Join(private.Close(cfg.Dir), m.separate()); err != nil {
		return nil, err
	}
	copies, err := records.ReadCopies[Record](cfg.Dir)
	if err != nil {
		cfg.Log.Error("some copies of sandboxes' records cannot be read", "error", err)
	}
	for id, rec := range copies {
		if _, ok := recs[id]; ok || rec.ID != id {
			continue
		}
		if rec.ReadyAt.IsZero() { // it was intended, and no more than that
			m.recs.put(rec)
		} else {
			cfg.Log.Warn("the record of a sandbox was lost, it is taken from its copy", "sandbox", id)
			m.recs.put(rec)
			m.restored = append(m.restored, rec)
		}
	}
	m.given, err = abandon.New(abandon.Config{DB: cfg.DB, Table: "sandboxes-abandoned", After: cfg.AbandonAfter, Undo: m.undoAbandoned, Log: cfg.Log}, slices.Collect(maps.Keys(m.recs.byID)))
	if err != nil {
		cfg.Log.Error("which sandboxes were given up is not all known; those that cannot be read stay", "error", err)
	}
	return m, nil
}

// Claim says that somebody knows of a sandbox: it was not given up, or is not any more.
func (m *Manager) Claim(id string) {
	if _, err := m.Get(id); err == nil {
		m.given.Claim(id)
	}
}

// UndoAbandoned removes the sandboxes that clients have given up, until ctx ends.
func (m *Manager) UndoAbandoned(ctx context.Context) error { return m.given.Run(ctx) }

func (m *Manager) undoAbandoned(ctx context.Context, id string) error {
	if m.cfg.Containers.Any(id) {
		return abandon.ErrInUse
	}
	return m.Remove(ctx, id)
}

// Get returns a sandbox that clients may know of, by its id, else errdefs.ErrNotFound.
func (m *Manager) Get(id string) (Record, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	rec, ok := m.recs.get(id)
	if !ok || !rec.visible() {
		return Record{}, fmt.Errorf("sandbox %q: %w", id, errdefs.ErrNotFound)
	}
	return rec, nil
}

// Has says whether Get knows the sandbox.
func (m *Manager) Has(id string) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	rec := m.recs.byID[id]
	return rec != nil && rec.visible()
}

// List returns the sandboxes that clients may know of, the oldest first.
func (m *Manager) List() []Record { return m.Select(nil) }

// Select returns those of them that a filter lets through, all with one that is nil, the oldest first. To select by a whole id or by labels takes
// time by how many have that id, or the rarest of the labels.
func (m *Manager) Select(f *cri.PodSandboxFilter) []Record {
	m.mu.RLock()
	found := m.recs.selected(f)
	m.mu.RUnlock()
	all := make([]Record, len(found))
	for i, rec := range found {
		all[i] = *rec
	}
	return all
}

// Shared says whether sandboxes of several pods that clients may know of are in a cgroup: a client may name the same parent for several.
func (m *Manager) Shared(cgroup string) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.recs.pods(cgroup) > 1
}

// Dir is a sandbox's folder.
func (m *Manager) Dir(id string) string { return filepath.Join(m.cfg.Dir, id) }

// intend takes down that a sandbox is to be made. All that is made of it ends with this boot, so the record needs to outlive this
// process, not the machine: it is in the sandbox's folder only, and not synced.
func (m *Manager) intend(rec Record) error {
	dir := m.Dir(rec.ID)
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		if err = records.WriteCopy(dir, rec); err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}
	if err != nil {
		return fmt.Errorf("store sandbox %s: %w", rec.ID, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recs.put(rec)
	return nil
}

// store makes a record durable, then visible. With one that becomes ready it is stored that its client has yet to get it.
func (m *Manager) store(rec Record) error {
	m.mu.RLock()
	before, _ := m.recs.get(rec.ID)
	m.mu.RUnlock()
	fresh := rec.visible() && !before.visible()
	if err := m.cfg.DB.Update(func(tx *state.Tx) error {
		if fresh {
			if err := m.given.Expect(tx, rec.ID); err != nil {
				return err
			}
		}
		return m.table.PutTx(tx, rec.ID, rec)
	}); err != nil {
		return fmt.Errorf("store sandbox %s: %w", rec.ID, err)
	}
	if fresh {
		m.given.Expected(rec.ID)
	}
	m.mu.Lock()
	m.recs.put(rec)
	m.mu.Unlock()
	if !rec.visible() {
		return nil
	}
	if err := records.WriteCopy(m.Dir(rec.ID), rec); err != nil && !os.IsNotExist(err) {
		m.cfg.Log.Warn("the record of a sandbox could not be copied", "sandbox", rec.ID, "error", err)
	}
	return nil
}

func (m *Manager) forget(id string) error {
	if err := m.table.Delete(id); err != nil {
		return fmt.Errorf("delete sandbox %s: %w", id, err)
	}
	m.mu.Lock()
	m.recs.drop(id)
	m.mu.Unlock()
	m.given.Forget(id)
	return nil
}

// Stop ends what runs in the sandbox and gives its network and namespaces back. It is idempotent, and does what an earlier
// Stop could not finish.
func (m *Manager) Stop(ctx context.Context, id string) error {
	return m.ops.Do(ctx, id, func() error { return m.stop(ctx, id) })
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
	if err := failpoint.Hit("runtime/sandbox-stop/persisted"); err != nil {
		return err
	}
	if err := m.cfg.Containers.StopAll(ctx, id); err != nil {
		return err
	}
	if err := failpoint.Hit("runtime/sandbox-stop/containers"); err != nil {
		return err
	}
	if err := m.reclaim(ctx, &rec); err != nil {
		return err
	}
	if err := failpoint.Hit("runtime/sandbox-stop/reclaimed"); err != nil {
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
	return m.ops.Do(ctx, id, func() error {
		m.mu.RLock()
		rec, ok := m.recs.get(id)
		m.mu.RUnlock()
		if !ok {
			return nil
		}
		if !rec.visible() { // its Run could not undo it
			return m.undo(ctx, &rec)
		}
		if err := m.stop(ctx, id); err != nil {
			return err
		}
		if err := failpoint.Hit("runtime/sandbox-remove/stopped"); err != nil {
			return err
		}
		if err := m.cfg.Containers.RemoveAll(ctx, id); err != nil {
			return err
		}
		if err := failpoint.Hit("runtime/sandbox-remove/containers"); err != nil {
			return err
		}
		rec, err := m.Get(id)
		if err != nil {
			return err
		}
		if err := m.erase(ctx, &rec); err != nil {
			return err
		}
		if err := failpoint.Hit("runtime/sandbox-remove/erased"); err != nil {
			return err
		}
		if err := m.forget(id); err != nil {
			return err
		}
		if err := failpoint.Hit("runtime/sandbox-remove/forgotten"); err != nil {
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
