package container

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/runtime/index"
	"monopod.dev/monopod/internal/runtime/randomid"
)

// known are all containers, those too that are half made or half removed, and the indexes by which a few of many are found. Put
// and Drop are the only places where either changes, so that they agree. It is a records.Known: what reads it goes through Store.Read.
type known struct {
	byID      map[ids.ContainerID]*entry
	sandboxes index.Of[ids.SandboxID, ids.ContainerID]
	labels    index.Labels[ids.ContainerID]
}

// entry is one container.
type entry struct {
	rec *Record
	Ending
}

func newEntry(rec *Record) *entry {
	e := &entry{rec: rec, Ending: Ending{exited: make(chan struct{})}}
	if rec.Exit != nil {
		close(e.exited)
	}
	return e
}

// Ending is how a container comes to its end: it is asked once, and its end is published.
type Ending struct {
	asked  atomic.Bool
	exited chan struct{} // closed when the container's end is published
}

// Exited is closed when the container's end is stored and published.
func (e *Ending) Exited() <-chan struct{} { return e.exited }

// Ask says whether the caller is the first to ask the container to end. NotAsked takes that back.
func (e *Ending) Ask() bool { return e.asked.CompareAndSwap(false, true) }

// NotAsked says that the container could not be asked.
func (e *Ending) NotAsked() { e.asked.Store(false) }

// Get implements records.Known.
func (r *known) Get(id ids.ContainerID) *Record {
	if e := r.byID[id]; e != nil {
		return e.rec
	}
	return nil
}

// Put implements records.Known.
func (r *known) Put(rec *Record) {
	e := r.byID[rec.ID]
	if e == nil {
		if r.byID == nil {
			r.byID = map[ids.ContainerID]*entry{}
		}
		r.byID[rec.ID] = newEntry(rec)
		r.index(rec)
		return
	}
	before := e.rec
	e.rec = rec
	if before.SandboxID != rec.SandboxID || before.Config() != rec.Config() { // neither ever does
		r.unindex(before)
		r.index(rec)
	}
}

// Drop implements records.Known.
func (r *known) Drop(id ids.ContainerID) {
	if e := r.byID[id]; e != nil {
		delete(r.byID, id)
		r.unindex(e.rec)
	}
}

func (r *known) index(rec *Record) {
	r.sandboxes.Add(rec.SandboxID, rec.ID)
	r.labels.Add(rec.Config().GetLabels(), rec.ID)
}

func (r *known) unindex(rec *Record) {
	r.sandboxes.Remove(rec.SandboxID, rec.ID)
	r.labels.Remove(rec.Config().GetLabels(), rec.ID)
}

// all are all records, the oldest first.
func (r *known) all() []*Record { return sorted(maps.Values(r.byID), whatever) }

// of are the records of a sandbox, the oldest first.
func (r *known) of(sandboxID ids.SandboxID) []*Record {
	return sorted(r.entries(r.sandboxes.IDs(sandboxID)), whatever)
}

// selected are the visible containers that a filter lets through, the oldest first; nil lets all through. An id, that of a sandbox, or the
// rarest of the labels tells which few have to be looked at.
func (r *known) selected(f *cri.ContainerFilter) []*Record {
	return sorted(r.candidates(f), func(rec *Record) bool { return rec.Visible() && selects(f, rec) })
}

func (r *known) candidates(f *cri.ContainerFilter) iter.Seq[*entry] {
	if len(f.GetId()) >= randomid.Length {
		return r.entries(func(yield func(ids.ContainerID) bool) { yield(ids.ContainerID(f.GetId())) })
	}
	if len(f.GetPodSandboxId()) >= randomid.Length {
		return r.entries(r.sandboxes.IDs(ids.SandboxID(f.GetPodSandboxId())))
	}
	if rarest, ok := r.labels.Rarest(f.GetLabelSelector()); ok {
		return r.entries(rarest)
	}
	return maps.Values(r.byID)
}

func (r *known) entries(found iter.Seq[ids.ContainerID]) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for id := range found {
			if e := r.byID[id]; e != nil && !yield(e) {
				return
			}
		}
	}
}

// whatever wants every record.
func whatever(*Record) bool { return true }

func sorted(entries iter.Seq[*entry], want func(*Record) bool) []*Record {
	var found []*Record // mostly a few of many are wanted
	for e := range entries {
		if want(e.rec) {
			found = append(found, e.rec)
		}
	}
	slices.SortFunc(found, func(a, b *Record) int {
		return cmp.Or(a.ReservedAt.Compare(b.ReservedAt), cmp.Compare(a.ID, b.ID))
	})
	return found
}

// selects says whether a filter lets a container through.
func selects(f *cri.ContainerFilter, rec *Record) bool {
	return strings.HasPrefix(string(rec.ID), f.GetId()) && strings.HasPrefix(string(rec.SandboxID), f.GetPodSandboxId()) &&
		(f.GetState() == nil || f.GetState().GetState() == rec.State()) && index.Selects(f.GetLabelSelector(), rec.Config().GetLabels())
}
