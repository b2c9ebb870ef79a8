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
	"path/filepath"
	"slices"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/host/private"
	"monopod.dev/monopod/internal/host/spreaddirs"
	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/image/store"
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
	Get(ctx context.Context, ref string) (store.Image, error)
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
	recs      *records.Store[Record]
	known     known              // read by recs.Read
	ops       keyed.Lock[string] // by id: the operations on one come one after another
	cdi       cdispec.Reader
	sandboxes *sandbox.Manager // set once by Join, before any call
	bin       *tree.Bin        // layers of containers that are gone
	run       string           // RunDir's parent, free of symbolic links

	toldMu sync.Mutex
	told   map[string]bool // what has been logged once
}

// NewManager reads the stored containers. Call Join and Recover before anything else.
func NewManager(cfg Config) (*Manager, error) {
	cfg.KillBound = cmp.Or(cfg.KillBound, defaultKillBound)
	m := &Manager{cfg: cfg, told: map[string]bool{}, bin: tree.NewBin(filepath.Join(cfg.Dir, tree.BinName), cfg.Log)}
	m.recs = records.Open(records.Config[Record]{DB: cfg.DB, Table: "containers", Kind: "container", Dir: cfg.RunDir, Known: &m.known,
		ID: func(r *Record) string { return r.ID }, Shown: (*Record).visible, Changed: m.changed, Forgotten: m.forgotten,
		Undo: m.undoAbandoned, AbandonAfter: cfg.AbandonAfter, Log: cfg.Log})
	if err := errors.Join(private.Dir(cfg.Dir), private.Passage(cfg.RunDir)); err != nil {
		return nil, err
	}
	if err := errors.Join(private.Close(cfg.Dir), private.Close(cfg.RunDir), spreaddirs.Directories(cfg.Dir)); err != nil {
		return nil, err
	}
	var err error
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
	var left int
	m.recs.Read(func() { left = len(m.known.byID) })
	if left > 0 {
		return nil
	}
	return mount.Unmount(m.cfg.RunDir)
}

// Claim says that somebody knows of a container: it was not given up, or is not any more.
func (m *Manager) Claim(id string) { m.recs.Claim(id) }

// UndoAbandoned removes the containers that clients have given up, until ctx ends.
func (m *Manager) UndoAbandoned(ctx context.Context) error { return m.recs.UndoAbandoned(ctx) }

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
func (m *Manager) Get(id string) (Record, error) { return m.recs.Get(id) }

// Has says whether Get knows the container.
func (m *Manager) Has(id string) bool { return m.recs.Has(id) }

// entry is what is known of a container, nil: nothing. Its record is read by recs.
func (m *Manager) entry(id string) (e *entry) {
	m.recs.Read(func() { e = m.known.byID[id] })
	return e
}

// List returns the containers that clients may know of, the oldest first.
func (m *Manager) List() []Record { return m.Select(nil) }

// Select returns those of them that a filter lets through, all with one that is nil, the oldest first. To select by a whole id, by that of a
// sandbox or by labels takes time by how many have that id, or the rarest of the labels.
func (m *Manager) Select(f *cri.ContainerFilter) []Record {
	return m.list(func() []*Record { return m.known.selected(f) })
}

// InSandbox returns the visible containers of one sandbox, the oldest first.
func (m *Manager) InSandbox(sandboxID string) []Record {
	return slices.DeleteFunc(m.of(sandboxID), func(r Record) bool { return !r.visible() })
}

// of returns all containers of one sandbox, those too that are half made or half removed, the oldest first.
func (m *Manager) of(sandboxID string) []Record {
	return m.list(func() []*Record { return m.known.of(sandboxID) })
}

// list copies what is found.
func (m *Manager) list(find func() []*Record) []Record {
	var found []*Record
	m.recs.Read(func() { found = find() })
	all := make([]Record, len(found))
	for i, rec := range found {
		all[i] = *rec
	}
	return all
}

// changed tells the listener which facts are new, and those who wait for the container's end.
func (m *Manager) changed(before, after *Record) {
	m.announce(before, after)
	if e := m.entry(after.ID); e != nil && before.Exit == nil && after.Exit != nil {
		close(e.exited)
	}
}

// forgotten tells the listener that a container is gone, if clients have known of it.
func (m *Manager) forgotten(rec *Record) {
	if !rec.CreatedAt.IsZero() {
		m.cfg.Listener.ContainerRemoved(*rec)
	}
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

// Bundle is the folder of a container's config.json and root file system.
func (m *Manager) Bundle(id string) string { return m.recs.Dir(id) }

func (m *Manager) rootfs(id string) string { return filepath.Join(m.Bundle(id), "rootfs") }
func (m *Manager) layer(id string) string  { return filepath.Join(m.cfg.Dir, id) }

// Name is what makes a container unique within its sandbox (ContainerMetadata).
func Name(md *cri.ContainerMetadata) string {
	return fmt.Sprintf("%s_%d", md.GetName(), md.GetAttempt())
}
