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
	"time"

	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/ns"
	"monopod.dev/monopod/internal/host/private"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/kit/keyed"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/ocispec"
	"monopod.dev/monopod/internal/runtime/abandon"
	"monopod.dev/monopod/internal/state"
)

// Network connects sandboxes; see package network for what is promised.
type Network interface {
	// Prepare takes down what a sandbox will have while its namespace is being made, so that Setup needs not wait for the disk. What cannot be
	// prepared is Setup's to do, and its errors Setup's to return. Teardown gives back what was prepared.
	Prepare(ctx context.Context, req network.Request)
	// Setup connects a sandbox, and returns its addresses. It is idempotent.
	Setup(ctx context.Context, req network.Request) (network.Result, error)
	// Teardown disconnects a sandbox, whether its namespace is there still or not. One that is not connected is no error.
	Teardown(ctx context.Context, sandboxID ids.SandboxID) error
}

// Ends ends what runs in a sandbox that is stopped.
type Ends interface {
	// StopAll kills all containers of the sandbox and returns when they have ended.
	StopAll(ctx context.Context, sandboxID ids.SandboxID) error
	// RemoveAll removes them.
	RemoveAll(ctx context.Context, sandboxID ids.SandboxID) error
	// End ends and deletes what the executor holds under an id that is no container's, and removes its cgroup, if given, with
	// what runs in it. One that is gone is no error.
	End(ctx context.Context, id ids.ContainerID, cgroup string) error
}

// Containers says which containers a sandbox has.
type Containers interface {
	// Any says whether there is one.
	Any(sandboxID ids.SandboxID) bool
	// MayRun says whether there is one, those too that clients do not know of, whose end is not known.
	MayRun(sandboxID ids.SandboxID) bool
}

// Listener hears of changes after they are stored.
type Listener interface {
	SandboxStarted(Record)
	SandboxStopped(Record)
	SandboxRemoved(Record)
}

// Config is what a Manager works with.
type Config struct {
	Records *Records
	// Folders are those of the records, beside those of the containers.
	Folders Folders
	Lent    *Lender
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
	Ends       Ends
	Listener   Listener
	Host       ocispec.Host
	// PrivilegedPorts: to listen below port 1024, and to ping, takes a capability in a pod as it does on the host, unless its sysctls say otherwise.
	PrivilegedPorts bool
	Log             *slog.Logger
}

// Manager makes sandboxes, stops and removes them.
type Manager struct {
	cfg     Config
	cgroups *cgroups
	levels  *levels
	ops     keyed.Lock[ids.SandboxID] // by id: the operations on one come one after another
	inits   keyed.Lock[ids.SandboxID] // the same of making its init
	procfs  ns.Procfs                 // for the sysctls of sandboxes
	apart   bool                      // the folders of sandboxes have a mount of their own
}

// NewManager makes the folder of the sandboxes. Call Recover before anything else.
func NewManager(cfg Config) (*Manager, error) {
	m := &Manager{cfg: cfg, cgroups: &cgroups{host: cfg.Cgroups, parent: cfg.CgroupParent, systemd: cfg.Systemd},
		levels: &levels{host: cfg.Host, records: cfg.Records, reserved: map[string]ids.SandboxID{}}}
	if err := private.Dir(cfg.Folders.Root); err != nil {
		return nil, err
	}
	return m, errors.Join(private.Close(cfg.Folders.Root), m.separate())
}

// UndoAbandoned removes the sandboxes that clients have given up, until ctx ends.
func (m *Manager) UndoAbandoned(ctx context.Context) error {
	return m.cfg.Records.UndoAbandoned(ctx, m.undoAbandoned)
}

func (m *Manager) undoAbandoned(ctx context.Context, id ids.SandboxID) error {
	if m.cfg.Containers.Any(id) {
		return abandon.ErrInUse
	}
	return m.Remove(ctx, id)
}

// Stop ends what runs in the sandbox and gives its network and namespaces back. It is idempotent, and does what an earlier
// Stop could not finish.
func (m *Manager) Stop(ctx context.Context, id ids.SandboxID) error {
	return m.ops.Do(ctx, id, func() error { return m.stop(ctx, id) })
}

func (m *Manager) stop(ctx context.Context, id ids.SandboxID) error {
	rec, err := m.cfg.Records.Get(id)
	if err != nil {
		return err
	}
	if !rec.ReclaimedAt.IsZero() {
		return nil
	}
	// It is not ready before its containers are looked for: from here on none can be created or started in it.
	if rec, err = m.cfg.Records.Modify(id, (*Record).stopped); err != nil {
		return err
	}
	if err := failpoint.Hit("runtime/sandbox-stop/persisted"); err != nil {
		return err
	}
	if err := m.cfg.Ends.StopAll(ctx, id); err != nil {
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
	if rec, err = m.cfg.Records.Modify(id, func(r *Record) bool { r.ReclaimedAt = time.Now(); return true }); err != nil {
		return err
	}
	m.cfg.Listener.SandboxStopped(rec)
	return nil
}

// Remove stops the sandbox and forgets it, with its containers. It is idempotent.
func (m *Manager) Remove(ctx context.Context, id ids.SandboxID) error {
	return m.ops.Do(ctx, id, func() error {
		rec, ok := m.cfg.Records.Lookup(id)
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
		if err := m.cfg.Ends.RemoveAll(ctx, id); err != nil {
			return err
		}
		if err := failpoint.Hit("runtime/sandbox-remove/containers"); err != nil {
			return err
		}
		rec, err := m.cfg.Records.Get(id)
		if err != nil {
			return err
		}
		if err := m.erase(ctx, &rec); err != nil {
			return err
		}
		if err := failpoint.Hit("runtime/sandbox-remove/erased"); err != nil {
			return err
		}
		if err := m.cfg.Records.Forget(id); err != nil {
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
	for id := range m.cfg.Records.all() {
		errs = append(errs, m.Remove(ctx, id))
	}
	return errors.Join(errs...)
}
