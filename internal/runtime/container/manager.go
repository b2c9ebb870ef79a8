// Package container holds the containers of the runtime: their records, root file systems and specifications. The executor
// creates and holds the processes; this package knows what they are for.
//
// Every method is safe for concurrent use. Create, Start and Remove of one container happen one after another; Stop waits for
// nobody, so that one with a shorter grace overtakes a longer one. Facts are stored before they are published.
package container

import (
	"cmp"
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

	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/host/private"
	"monopod.dev/monopod/internal/host/spreaddirs"
	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/image"
	"monopod.dev/monopod/internal/kit/keyed"
	"monopod.dev/monopod/internal/runtime/abandon"
	"monopod.dev/monopod/internal/runtime/records"
	"monopod.dev/monopod/internal/runtime/sandbox"
	"monopod.dev/monopod/internal/state"
)

// Executor is what containers need of the executor's client.
type Executor interface {
	Create(ctx context.Context, req protocol.CreateRequest) (protocol.CreateResponse, error)
	Start(ctx context.Context, id string) (protocol.StartResponse, error)
	Kill(ctx context.Context, req protocol.KillRequest) error
	Delete(ctx context.Context, id string) error
	State(ctx context.Context, id string) (protocol.ContainerState, error)
	List(ctx context.Context) ([]protocol.ContainerState, error)
	Events(ctx context.Context, f func(protocol.Event)) error
	ReopenLog(ctx context.Context, id string) error
	Update(ctx context.Context, req protocol.UpdateRequest) error
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

// Listener hears of changes after they are stored, those of one container in the order of its life. It must not call back what
// changes containers.
type Listener interface {
	ContainerCreated(Record)
	ContainerStarted(Record)
	ContainerStopped(Record)
	ContainerRemoved(Record)
}

// LogRotation limits the logs of containers that are created from now on. The zero value does not: then somebody else
// rotates them.
type LogRotation struct {
	MaxBytes int64
	MaxFiles int // kept of each log, the present one included
}

// of returns the limits of a log at that path.
func (r LogRotation) of(path string) (maxBytes int64, maxFiles int) {
	if path == "" || r.MaxBytes == 0 {
		return 0, 0
	}
	return r.MaxBytes, r.MaxFiles
}

// Config is what a Manager works with.
type Config struct {
	// Dir holds each container's writable layer, and outlives a reboot; RunDir its bundle, for this boot. All that the runtime
	// mounts lies below RunDir's parent.
	Dir, RunDir string
	CDISpecDirs []string
	// IgnoreCDIAnnotations: only CRI's CDI_devices ask for devices, no annotations of containers.
	IgnoreCDIAnnotations bool
	BootID               string
	Cgroups              *cgroup.Host
	DB                   *state.DB
	Executor             Executor
	Images               Images
	Listener             Listener
	Host                 Host
	Runtimes             map[string]Runtime // by runtime handler
	LogRotation          LogRotation
	// AbandonAfter is how long a container stays whose client has gone before the answer; 0 is abandon.Default.
	AbandonAfter time.Duration
	// KillBound is how long a call waits for processes to end after SIGKILL; 0 is ten seconds.
	KillBound time.Duration
	Log       *slog.Logger
}

// Manager holds all containers.
type Manager struct {
	cfg       Config
	table     state.Table[Record]
	making    abandon.Group      // what is being created
	ops       keyed.Lock[string] // by id: the operations on one come one after another
	given     *abandon.Ledger    // what clients have given up
	cdi       cdispec.Reader
	sandboxes *sandbox.Manager // set once by Join, before any call
	bin       *tree.Bin        // layers of containers that are gone
	run       string           // RunDir's parent, free of symbolic links

	unread records.Unread // records that are there, and cannot be read
	// restored are the records that were taken from their copies; Recover stores them.
	restored []Record

	toldMu sync.Mutex
	told   map[string]bool // what has been logged once

	mu   sync.RWMutex
	recs known
}

// entry is one container.
type entry struct {
	// write is held from the reading of the record to the publication of what became of it. It is taken before Manager.mu.
	write  sync.Mutex
	rec    *Record       // what is stored; it is never changed, but replaced. Guarded by Manager.mu
	asked  bool          // the stop signal was sent; guarded by Manager.mu
	exited chan struct{} // closed when the container's end is published
}

func newEntry(rec Record) *entry {
	e := &entry{rec: &rec, exited: make(chan struct{})}
	if rec.Exit != nil {
		close(e.exited)
	}
	return e
}

// NewManager reads the stored containers. Call Join and Recover before anything else.
func NewManager(cfg Config) (*Manager, error) {
	cfg.KillBound = cmp.Or(cfg.KillBound, defaultKillBound)
	m := &Manager{cfg: cfg, table: state.NewTable[Record](cfg.DB, "containers"), told: map[string]bool{},
		bin: tree.NewBin(filepath.Join(cfg.Dir, tree.BinName), cfg.Log)}
	recs, err := m.table.List()
	if err != nil {
		m.unread = records.UnreadOf(err)
		cfg.Log.Error("some stored containers cannot be read; what runs of them goes on", "error", err)
	}
	for _, rec := range recs {
		m.recs.add(rec)
	}
	copies, err := records.ReadCopies[Record](cfg.RunDir)
	if err != nil {
		cfg.Log.Error("some copies of containers' records cannot be read", "error", err)
	}
	for id, rec := range copies {
		if _, ok := recs[id]; ok || rec.ID != id {
			continue
		}
		if !rec.visible() { // it was intended, and no more than that
			m.recs.add(rec)
		} else {
			cfg.Log.Warn("the record of a container was lost, it is taken from its copy", "container", id)
			m.recs.add(rec)
			m.restored = append(m.restored, rec)
		}
	}
	m.given, err = abandon.New(abandon.Config{DB: cfg.DB, Table: "containers-abandoned", After: cfg.AbandonAfter, Undo: m.undoAbandoned, Log: cfg.Log}, slices.Collect(maps.Keys(m.recs.byID)))
	if err != nil {
		cfg.Log.Error("which containers were given up is not all known; those that cannot be read stay", "error", err)
	}
	if err := errors.Join(private.Dir(cfg.Dir), private.Passage(cfg.RunDir)); err != nil {
		return nil, err
	}
	if err := errors.Join(private.Close(cfg.Dir), private.Close(cfg.RunDir), spreaddirs.Directories(cfg.Dir)); err != nil {
		return nil, err
	}
	if m.run, err = filepath.EvalSymlinks(filepath.Dir(cfg.RunDir)); err != nil {
		return nil, err
	}
	return m, m.isolate()
}

// isolate keeps root file systems out of other containers' recursive bind mounts. It has to come before the first of them is
// mounted: those that are there would be hidden.
func (m *Manager) isolate() error {
	mounted, err := mount.Below(m.cfg.RunDir)
	if err != nil || len(mounted) > 0 {
		return err
	}
	return mount.Isolate(m.cfg.RunDir)
}

// Close takes away what the manager itself has on the host, when no container is left.
func (m *Manager) Close() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if len(m.recs.byID) > 0 {
		return nil
	}
	return mount.Unmount(m.cfg.RunDir)
}

// Claim says that somebody knows of a container: it was not given up, or is not any more.
func (m *Manager) Claim(id string) {
	if _, err := m.Get(id); err == nil {
		m.given.Claim(id)
	}
}

// UndoAbandoned removes the containers that clients have given up, until ctx ends.
func (m *Manager) UndoAbandoned(ctx context.Context) error { return m.given.Run(ctx) }

// RemoveLayers removes the layers of containers that are gone, until ctx ends; what it has not removed, the next one does, also of a process that comes later.
func (m *Manager) RemoveLayers(ctx context.Context) error { return m.bin.Run(ctx) }

func (m *Manager) undoAbandoned(ctx context.Context, id string) error {
	if rec, err := m.Get(id); err == nil && rec.State() != cri.ContainerState_CONTAINER_CREATED {
		return abandon.ErrInUse // somebody has started it
	}
	return m.Remove(ctx, id)
}

// Any says whether a sandbox has containers that clients may know of.
func (m *Manager) Any(sandboxID string) bool { return len(m.InSandbox(sandboxID)) > 0 }

// MayRun says whether a sandbox has containers, those too that are half made or half removed, whose end is not known.
func (m *Manager) MayRun(sandboxID string) bool {
	return slices.ContainsFunc(m.of(sandboxID), func(r Record) bool { return r.Exit == nil })
}

// Join tells the manager where the sandboxes are.
func (m *Manager) Join(s *sandbox.Manager) { m.sandboxes = s }

// Get returns a container that clients may know of, by its id, else errdefs.ErrNotFound.
func (m *Manager) Get(id string) (Record, error) {
	rec, _, err := m.get(id)
	return rec, err
}

// Has says whether Get knows the container.
func (m *Manager) Has(id string) bool {
	_, rec, ok := m.lookup(id)
	return ok && rec.visible()
}

func (m *Manager) get(id string) (Record, <-chan struct{}, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	e, ok := m.recs.byID[id]
	if !ok || !e.rec.visible() {
		return Record{}, nil, fmt.Errorf("container %q: %w", id, errdefs.ErrNotFound)
	}
	return *e.rec, e.exited, nil
}

// lookup returns a record, that of a container too which clients may not know of: one half made or half removed.
func (m *Manager) lookup(id string) (*entry, Record, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	e, ok := m.recs.byID[id]
	if !ok {
		return nil, Record{}, false
	}
	return e, *e.rec, true
}

// List returns the containers that clients may know of, the oldest first.
func (m *Manager) List() []Record { return m.Select(nil) }

// Select returns those of them that a filter lets through, all with one that is nil, the oldest first. To select by a whole id, by that of a
// sandbox or by labels takes time by how many have that id, or the rarest of the labels.
func (m *Manager) Select(f *cri.ContainerFilter) []Record {
	return m.list(func() []*Record { return m.recs.selected(f) })
}

// InSandbox returns the visible containers of one sandbox, the oldest first.
func (m *Manager) InSandbox(sandboxID string) []Record {
	return slices.DeleteFunc(m.of(sandboxID), func(r Record) bool { return !r.visible() })
}

// of returns all containers of one sandbox, those too that are half made or half removed, the oldest first.
func (m *Manager) of(sandboxID string) []Record {
	return m.list(func() []*Record { return m.recs.of(sandboxID) })
}

// list copies what is found, under the lock.
func (m *Manager) list(find func() []*Record) []Record {
	m.mu.RLock()
	found := find()
	m.mu.RUnlock()
	all := make([]Record, len(found))
	for i, rec := range found {
		all[i] = *rec
	}
	return all
}

// modify stores what f makes of a record, makes it visible and tells the listener. f may say that nothing is to change by
// returning false. With one that is created it is stored that its client has yet to get it. It is the one place where records change, so that two events never overwrite each other's facts.
func (m *Manager) modify(id string, f func(*Record) bool) (Record, error) {
	e, _, ok := m.lookup(id)
	if !ok {
		return Record{}, fmt.Errorf("container %q: %w", id, errdefs.ErrNotFound)
	}
	e.write.Lock()
	defer e.write.Unlock()
	if now, before, ok := m.lookup(id); ok && now == e {
		rec := before
		if !f(&rec) {
			return rec, nil
		}
		fresh := before.CreatedAt.IsZero() && !rec.CreatedAt.IsZero()
		if err := m.cfg.DB.Update(func(tx *state.Tx) error {
			if fresh {
				if err := m.given.Expect(tx, id); err != nil {
					return err
				}
			}
			return m.table.PutTx(tx, id, rec)
		}); err != nil {
			return Record{}, fmt.Errorf("store container %s: %w", id, err)
		}
		if fresh {
			m.given.Expected(id)
		}
		m.mu.Lock()
		m.recs.change(e, rec)
		m.mu.Unlock()
		m.copy(&rec)
		m.announce(&before, &rec)
		if before.Exit == nil && rec.Exit != nil {
			close(e.exited)
		}
		return rec, nil
	}
	return Record{}, fmt.Errorf("container %q: %w", id, errdefs.ErrNotFound)
}

// announce tells the listener which facts are new.
func (m *Manager) announce(before, after *Record) {
	if !after.visible() {
		return
	}
	shown := before.visible()
	if !shown {
		m.cfg.Listener.ContainerCreated(*after)
	}
	if !after.StartedAt.IsZero() && (before.StartedAt.IsZero() || !shown) {
		m.cfg.Listener.ContainerStarted(*after)
	}
	if after.Exit != nil && (before.Exit == nil || !shown) {
		m.cfg.Listener.ContainerStopped(*after)
	}
}

// copy renews the record's copy. Without one the container lives as well, until the table is lost.
func (m *Manager) copy(rec *Record) {
	if !rec.visible() {
		return
	}
	if err := records.WriteCopy(m.Bundle(rec.ID), rec); err != nil && !os.IsNotExist(err) {
		m.cfg.Log.Warn("the record of a container could not be copied", "container", rec.ID, "error", err)
	}
}

// add takes down that a container is to be made. Its folder holds the record, which needs to outlive this process and not the machine:
// of what outlives a reboot (the writable layer, the pin of the image) Recover finds what has no record. It is stored, and published, by
// a modify.
func (m *Manager) add(rec Record) error {
	dir := m.Bundle(rec.ID)
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		if err = records.WriteCopy(dir, rec); err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}
	if err != nil {
		return fmt.Errorf("store container %s: %w", rec.ID, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recs.add(rec)
	return nil
}

// forget deletes a record, and tells the listener if clients have known of the container.
func (m *Manager) forget(id string) error {
	e, _, ok := m.lookup(id)
	if !ok {
		return nil
	}
	e.write.Lock()
	defer e.write.Unlock()
	if err := m.table.Delete(id); err != nil {
		return fmt.Errorf("delete container %s: %w", id, err)
	}
	m.mu.Lock()
	rec := *e.rec
	m.recs.drop(id)
	m.mu.Unlock()
	m.given.Forget(id)
	if !rec.CreatedAt.IsZero() {
		m.cfg.Listener.ContainerRemoved(rec)
	}
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
