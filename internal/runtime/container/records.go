// Package container is what is known of the containers of the runtime: their records, what of them is found by what, and where their files are.
// The packages below act: life makes and starts them, end ends and removes them, and each has one part of a container from rootfs (its root
// file system and mounts), spec (its OCI specification), cdi (what CDI devices add to that), devnode (device nodes) and pidns (PID
// namespaces); hostfacts is what this host can do for them. The executor creates and holds the processes; this package knows what they are for.
package container

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/kit/keyed"
	"monopod.dev/monopod/internal/runtime/records"
	"monopod.dev/monopod/internal/state"
)

// RecordsConfig is what Records work with.
type RecordsConfig struct {
	DB           *state.DB
	Folders      Folders
	Listener     Listener
	AbandonAfter time.Duration // how long a container stays whose client has gone before the answer; 0 is abandon.Default
	Log          *slog.Logger
}

// Records are all containers: what is stored of them (records.Store), and how a few of many are found. All methods are safe for concurrent
// use. Facts are stored before they are published.
type Records struct {
	*records.Store[ids.ContainerID, Record]
	known    known // read by Store.Read
	listener Listener
	ops      keyed.Lock[ids.ContainerID]
}

// OpenRecords reads the stored containers.
func OpenRecords(cfg RecordsConfig) *Records {
	r := &Records{listener: cfg.Listener}
	r.Store = records.Open(records.Config[ids.ContainerID, Record]{DB: cfg.DB, Table: "containers", Kind: "container", Dir: cfg.Folders.Bundles, Known: &r.known,
		ID: func(rec *Record) ids.ContainerID { return rec.ID }, Shown: (*Record).Visible, Changed: r.changed, Forgotten: r.forgotten,
		AbandonAfter: cfg.AbandonAfter, Log: cfg.Log})
	return r
}

// Do runs f when no other operation on the container runs that goes through Do: its creation, start, update or removal.
func (r *Records) Do(ctx context.Context, id ids.ContainerID, f func() error) error {
	return r.ops.Do(ctx, id, f)
}

// Ending is how the end of a container is told, to those who wait for it; nil: the container is not there.
func (r *Records) Ending(id ids.ContainerID) (e *Ending) {
	r.Read(func() {
		if known := r.known.byID[id]; known != nil {
			e = &known.Ending
		}
	})
	return e
}

// List returns the containers that clients may know of, the oldest first.
func (r *Records) List() []Record { return r.Select(nil) }

// Select returns those of them that a filter lets through, all with one that is nil, the oldest first. To select by a whole id, by that of a
// sandbox or by labels takes time by how many have that id, or the rarest of the labels.
func (r *Records) Select(f *cri.ContainerFilter) []Record {
	return r.list(func() []*Record { return r.known.selected(f) })
}

// InSandbox returns the containers of one sandbox that clients may know of, the oldest first.
func (r *Records) InSandbox(sandboxID ids.SandboxID) []Record {
	return slices.DeleteFunc(r.AllInSandbox(sandboxID), func(rec Record) bool { return !rec.Visible() })
}

// AllInSandbox returns all containers of one sandbox, those too that are half made or half removed, the oldest first.
func (r *Records) AllInSandbox(sandboxID ids.SandboxID) []Record {
	return r.list(func() []*Record { return r.known.of(sandboxID) })
}

// All returns all containers, those too that are half made or half removed, the oldest first.
func (r *Records) All() []Record { return r.list(r.known.all) }

// Any says whether a sandbox has containers that clients may know of.
func (r *Records) Any(sandboxID ids.SandboxID) bool { return len(r.InSandbox(sandboxID)) > 0 }

// MayRun says whether a sandbox has containers, those too that are half made or half removed, whose end is not known.
func (r *Records) MayRun(sandboxID ids.SandboxID) bool {
	return slices.ContainsFunc(r.AllInSandbox(sandboxID), func(rec Record) bool { return rec.Exit == nil })
}

// list copies what is found.
func (r *Records) list(find func() []*Record) []Record {
	var found []*Record
	r.Read(func() { found = find() })
	all := make([]Record, len(found))
	for i, rec := range found {
		all[i] = *rec
	}
	return all
}

// Observe takes in what the executor says of a container. It is repeatable and takes facts in any order: an event and the
// answer to a call may tell the same thing.
func (r *Records) Observe(s protocol.ContainerState) error {
	_, err := r.Modify(s.ID, func(rec *Record) (changed bool) {
		failed := s.Exit != nil && s.Exit.Reason == protocol.ReasonStartError // then StartedAt is when it was tried
		if !s.StartedAt.IsZero() && rec.StartedAt.IsZero() && !failed {
			rec.StartedAt, changed = s.StartedAt, true
		}
		if s.Phase == protocol.Exited && s.Exit != nil && rec.Exit == nil {
			exit := *s.Exit
			rec.Exit, changed = &exit, true
		}
		return changed
	})
	if errdefs.IsNotFound(err) {
		return nil // it is being removed, or was never ours
	}
	return err
}

// changed tells the listener which facts are new, and then those who wait for the container's end.
func (r *Records) changed(before, after *Record) {
	r.announce(before, after)
	if e := r.Ending(after.ID); e != nil && before.Exit == nil && after.Exit != nil {
		close(e.exited)
	}
}

// forgotten tells the listener that a container is gone, if clients have known of it.
func (r *Records) forgotten(rec *Record) {
	if !rec.CreatedAt.IsZero() {
		r.listener.ContainerRemoved(*rec)
	}
}

// announce tells the listener which facts are new.
func (r *Records) announce(before, after *Record) {
	if !after.Visible() {
		return
	}
	shown := before.Visible()
	if !shown {
		r.listener.ContainerCreated(*after)
	}
	if !after.StartedAt.IsZero() && (before.StartedAt.IsZero() || !shown) {
		r.listener.ContainerStarted(*after)
	}
	if after.Exit != nil && (before.Exit == nil || !shown) {
		r.listener.ContainerStopped(*after)
	}
}

// Listener hears of changes after they are stored, those of one container in the order of its life. It must not call back what
// changes containers.
type Listener interface {
	ContainerCreated(Record)
	ContainerStarted(Record)
	ContainerStopped(Record)
	ContainerRemoved(Record)
}
