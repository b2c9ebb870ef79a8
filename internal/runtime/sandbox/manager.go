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
	"log/slog"
	"path/filepath"
	"sync"
	"time"

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
	// Prepare takes down what a sandbox will have while its namespace is being made, so that Setup needs not wait for the disk. What cannot be
	// prepared is Setup's to do, and its errors Setup's to return. Teardown gives back what was prepared.
	Prepare(ctx context.Context, req network.Request)
	Setup(ctx context.Context, req network.Request) (network.Result, error)
	Teardown(ctx context.Context, sandboxID string) error
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
	recs   *records.Store[Record]
	known  known              // read by recs.Read
	ops    keyed.Lock[string] // by id: the operations on one come one after another
	procfs ns.Procfs          // for the sysctls of sandboxes
	apart  bool               // the folders of sandboxes have a mount of their own

	lendMu sync.Mutex // held to change the file of a sandbox's lent interfaces

	levelsMu sync.Mutex
	// levels are those of SELinux which sandboxes have whose records are not stored yet; the sandboxes' ids by level.
	levels map[string]string
}

// NewManager reads the stored sandboxes. Call Recover before anything else.
func NewManager(cfg Config) (*Manager, error) {
	m := &Manager{cfg: cfg, levels: map[string]string{}}
	if err := private.Dir(cfg.Dir); err != nil {
		return nil, err
	}
	if err := errors.Join(private.Close(cfg.Dir), m.separate()); err != nil {
		return nil, err
	}
	m.recs = records.Open(records.Config[Record]{DB: cfg.DB, Table: "sandboxes", Kind: "sandbox", Dir: cfg.Dir, Known: &m.known,
		ID: func(r *Record) string { return r.ID }, Shown: (*Record).visible, Undo: m.undoAbandoned, AbandonAfter: cfg.AbandonAfter, Log: cfg.Log})
	return m, nil
}

// Claim says that somebody knows of a sandbox: it was not given up, or is not any more.
func (m *Manager) Claim(id string) { m.recs.Claim(id) }

// UndoAbandoned removes the sandboxes that clients have given up, until ctx ends.
func (m *Manager) UndoAbandoned(ctx context.Context) error { return m.recs.UndoAbandoned(ctx) }

func (m *Manager) undoAbandoned(ctx context.Context, id string) error {
	if m.cfg.Containers.Any(id) {
		return abandon.ErrInUse
	}
	return m.Remove(ctx, id)
}

// Get returns a sandbox that clients may know of, by its id, else errdefs.ErrNotFound.
func (m *Manager) Get(id string) (Record, error) { return m.recs.Get(id) }

// Has says whether Get knows the sandbox.
func (m *Manager) Has(id string) bool { return m.recs.Has(id) }

// List returns the sandboxes that clients may know of, the oldest first.
func (m *Manager) List() []Record { return m.Select(nil) }

// Select returns those of them that a filter lets through, all with one that is nil, the oldest first. To select by a whole id or by labels takes
// time by how many have that id, or the rarest of the labels.
func (m *Manager) Select(f *cri.PodSandboxFilter) []Record {
	var found []*Record
	m.recs.Read(func() { found = m.known.selected(f) })
	all := make([]Record, len(found))
	for i, rec := range found {
		all[i] = *rec
	}
	return all
}

// Shared says whether sandboxes of several pods that clients may know of are in a cgroup: a client may name the same parent for several.
func (m *Manager) Shared(cgroup string) (shared bool) {
	m.recs.Read(func() { shared = m.known.pods(cgroup) > 1 })
	return shared
}

// Dir is a sandbox's folder.
func (m *Manager) Dir(id string) string { return filepath.Join(m.cfg.Dir, id) }

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
	if rec, err = m.recs.Modify(id, (*Record).stopped); err != nil {
		return err
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
	if rec, err = m.recs.Modify(id, func(r *Record) bool { r.ReclaimedAt = time.Now(); return true }); err != nil {
		return err
	}
	m.cfg.Listener.SandboxStopped(rec)
	return nil
}

// Remove stops the sandbox and forgets it, with its containers. It is idempotent.
func (m *Manager) Remove(ctx context.Context, id string) error {
	return m.ops.Do(ctx, id, func() error {
		rec, ok := m.recs.Lookup(id)
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
		if err := m.recs.Forget(id); err != nil {
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
