// Package container holds the containers of the runtime: their records, root file systems and specifications. The executor
// creates and holds the processes; this package knows what they are for.
//
// Every method is safe for concurrent use. Create, Start and Remove of one container happen one after another; Stop waits for
// nobody, so that one with a shorter grace overtakes a longer one. Facts are stored before they are published.
package container

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"sync"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/image"
	"monopod.dev/monopod/internal/runtime/flight"
	"monopod.dev/monopod/internal/runtime/sandbox"
	"monopod.dev/monopod/internal/state"
)

// Executor is what containers need of the executor's client.
type Executor interface {
	Create(ctx context.Context, req protocol.CreateRequest) (protocol.CreateResponse, error)
	Start(ctx context.Context, id string) (protocol.StartResponse, error)
	Kill(ctx context.Context, req protocol.KillRequest) error
	Delete(ctx context.Context, id string) error
	List(ctx context.Context) ([]protocol.ContainerState, error)
	Events(ctx context.Context, f func(protocol.Event)) error
	ReopenLog(ctx context.Context, id string) error
}

// Images is what containers need of the image store.
type Images interface {
	Get(ctx context.Context, ref string) (image.Image, error)
	Layers(ctx context.Context, imageID string) ([]string, error)
	Pin(ctx context.Context, imageID, user string) error
	Unpin(ctx context.Context, imageID, user string) error
	// Pins maps each user to the images that it has pinned.
	Pins(ctx context.Context) (map[string][]string, error)
}

// Listener hears of changes after they are stored.
type Listener interface {
	ContainerCreated(Record)
	ContainerStarted(Record)
	ContainerStopped(Record)
	ContainerRemoved(Record)
}

// Config is what a Manager works with.
type Config struct {
	// Dir holds each container's writable layer, and outlives a reboot; RunDir its bundle, for this boot.
	Dir, RunDir string
	CDISpecDirs []string
	BootID      string
	DB          *state.DB
	Executor    Executor
	Images      Images
	Listener    Listener
	Host        Host
	Log         *slog.Logger
}

// Manager holds all containers.
type Manager struct {
	cfg       Config
	table     state.Table[Record]
	flight    flight.Group
	sandboxes *sandbox.Manager // set once by Join, before any call

	mu   sync.RWMutex
	recs map[string]*entry
}

// entry is one container: what is stored, and a channel that is closed when it has ended.
type entry struct {
	rec    Record
	exited chan struct{}
}

func newEntry(rec Record) *entry {
	e := &entry{rec: rec, exited: make(chan struct{})}
	if rec.Exit != nil {
		close(e.exited)
	}
	return e
}

// NewManager reads the stored containers. Call Join and Recover before anything else.
func NewManager(cfg Config) (*Manager, error) {
	m := &Manager{cfg: cfg, table: state.NewTable[Record](cfg.DB, "containers"), recs: map[string]*entry{}}
	recs, err := m.table.List()
	if err != nil {
		cfg.Log.Error("some stored containers cannot be read; they are kept but not served", "error", err)
	}
	for id, rec := range recs {
		m.recs[id] = newEntry(rec)
	}
	for _, dir := range []string{cfg.Dir, cfg.RunDir} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Join tells the manager where the sandboxes are.
func (m *Manager) Join(s *sandbox.Manager) { m.sandboxes = s }

// Get returns a container that clients may know of, by its id, else errdefs.ErrNotFound.
func (m *Manager) Get(id string) (Record, error) {
	rec, _, err := m.get(id)
	return rec, err
}

func (m *Manager) get(id string) (Record, <-chan struct{}, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	e, ok := m.recs[id]
	if !ok || !e.rec.visible() {
		return Record{}, nil, fmt.Errorf("container %q: %w", id, errdefs.ErrNotFound)
	}
	return e.rec, e.exited, nil
}

// hidden says that there is a record of a container that clients may not know of: one half made or half removed.
func (m *Manager) hidden(id string) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	e, ok := m.recs[id]
	return ok && !e.rec.visible()
}

// List returns the containers that clients may know of, the oldest first.
func (m *Manager) List() []Record {
	return m.list(func(r *Record) bool { return r.visible() })
}

// InSandbox returns the visible containers of one sandbox, the oldest first.
func (m *Manager) InSandbox(sandboxID string) []Record {
	return m.list(func(r *Record) bool { return r.visible() && r.SandboxID == sandboxID })
}

func (m *Manager) list(want func(*Record) bool) []Record {
	m.mu.RLock()
	all := make([]Record, 0, len(m.recs))
	for _, e := range m.recs {
		if want(&e.rec) {
			all = append(all, e.rec)
		}
	}
	m.mu.RUnlock()
	sort.Slice(all, func(i, j int) bool { return all[i].ReservedAt.Before(all[j].ReservedAt) })
	return all
}

// modify stores what f makes of a record, then makes it visible. f may say that nothing is to change by returning false. It is the
// one place where records change, so that two events never overwrite each other's facts.
func (m *Manager) modify(id string, f func(*Record) bool) (Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.recs[id]
	if !ok {
		return Record{}, fmt.Errorf("container %q: %w", id, errdefs.ErrNotFound)
	}
	rec := e.rec
	if !f(&rec) {
		return rec, nil
	}
	if err := m.table.Put(id, rec); err != nil {
		return Record{}, fmt.Errorf("store container %s: %w", id, err)
	}
	ended := e.rec.Exit == nil && rec.Exit != nil
	e.rec = rec
	if ended {
		close(e.exited)
	}
	return rec, nil
}

func (m *Manager) add(rec Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.table.Put(rec.ID, rec); err != nil {
		return fmt.Errorf("store container %s: %w", rec.ID, err)
	}
	m.recs[rec.ID] = newEntry(rec)
	return nil
}

func (m *Manager) forget(id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.table.Delete(id); err != nil {
		return fmt.Errorf("delete container %s: %w", id, err)
	}
	delete(m.recs, id)
	return nil
}

// Bundle is the folder of a container's config.json and root file system.
func (m *Manager) Bundle(id string) string { return filepath.Join(m.cfg.RunDir, id) }

func (m *Manager) rootfs(id string) string { return filepath.Join(m.Bundle(id), "rootfs") }
func (m *Manager) layer(id string) string  { return filepath.Join(m.cfg.Dir, id) }

// Name is what makes a container unique within its sandbox (ContainerMetadata).
func Name(md *cri.ContainerMetadata) string {
	return fmt.Sprintf("%s_%d", md.GetName(), md.GetAttempt())
}
