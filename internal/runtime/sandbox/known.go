package sandbox

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/runtime/index"
	"monopod.dev/monopod/internal/runtime/randomid"
)

// known are all sandboxes, and the indexes by which one of many is found. Put and Drop are the only places where either changes, so
// that they agree. It is a records.Known: what reads it goes through Store.Read.
type known struct {
	byID    map[ids.SandboxID]*Record // what is stored, and nothing else. A record that is here is never changed, but replaced
	names   index.Of[name, ids.SandboxID]
	cgroups index.Of[cgroupUse, ids.SandboxID]
	levels  index.Of[string, ids.SandboxID] // of SELinux
	labels  index.Labels[ids.SandboxID]
}

// name is what Name is made of.
type name struct {
	name, namespace, uid string
	attempt              uint32
}

func nameOf(md *cri.PodSandboxMetadata) name {
	return name{md.GetName(), md.GetNamespace(), md.GetUid(), md.GetAttempt()}
}

// cgroupUse is a cgroup, and whether it goes with the sandbox.
type cgroupUse struct {
	path string
	own  bool
}

// Get implements records.Known.
func (r *known) Get(id ids.SandboxID) *Record { return r.byID[id] }

// Put implements records.Known.
func (r *known) Put(rec *Record) {
	r.Drop(rec.ID)
	if r.byID == nil {
		r.byID = map[ids.SandboxID]*Record{}
	}
	r.byID[rec.ID] = rec
	r.names.Add(nameOf(rec.Config().GetMetadata()), rec.ID)
	r.cgroups.Add(cgroupUse{rec.Cgroup, rec.OwnCgroup}, rec.ID)
	r.levels.Add(rec.SELinux.Level, rec.ID)
	r.labels.Add(rec.Config().GetLabels(), rec.ID)
}

// Drop implements records.Known.
func (r *known) Drop(id ids.SandboxID) {
	rec := r.byID[id]
	if rec == nil {
		return
	}
	delete(r.byID, id)
	r.names.Remove(nameOf(rec.Config().GetMetadata()), id)
	r.cgroups.Remove(cgroupUse{rec.Cgroup, rec.OwnCgroup}, id)
	r.levels.Remove(rec.SELinux.Level, id)
	r.labels.Remove(rec.Config().GetLabels(), id)
}

// named finds a visible sandbox by what Name is made of.
func (r *known) named(md *cri.PodSandboxMetadata) (Record, bool) {
	for id := range r.names.IDs(nameOf(md)) {
		if rec := r.byID[id]; rec.visible() {
			return *rec, true
		}
	}
	return Record{}, false
}

// shares says that another sandbox has the same cgroup, and made it.
func (r *known) shares(rec *Record) bool {
	n := r.cgroups.Len(cgroupUse{rec.Cgroup, true})
	if own := r.byID[rec.ID]; own != nil && own.OwnCgroup && own.Cgroup == rec.Cgroup {
		n--
	}
	return n > 0
}

// pods says of how many pods visible sandboxes are in a cgroup; two stands for more. The sandboxes of one pod, of which one is ready at
// a time, are one.
func (r *known) pods(cgroup string) int {
	var uid string
	found := 0
	for _, own := range []bool{false, true} {
		for id := range r.cgroups.IDs(cgroupUse{cgroup, own}) {
			rec := r.byID[id]
			if !rec.visible() {
				continue
			}
			switch other := rec.Config().GetMetadata().GetUid(); {
			case found == 0:
				uid, found = other, 1
			case other != uid:
				return 2
			}
		}
	}
	return found
}

// selected are the visible sandboxes that a filter lets through, the oldest first; nil lets all through. An id, or the rarest of the
// labels, tells which few have to be looked at.
func (r *known) selected(f *cri.PodSandboxFilter) []*Record {
	var found []*Record
	for rec := range r.candidates(f) {
		if rec.visible() && selects(f, rec) {
			found = append(found, rec)
		}
	}
	slices.SortFunc(found, func(a, b *Record) int { return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID)) })
	return found
}

func (r *known) candidates(f *cri.PodSandboxFilter) iter.Seq[*Record] {
	found, ok := r.labels.Rarest(f.GetLabelSelector())
	switch {
	case len(f.GetId()) >= randomid.Length:
		found = func(yield func(ids.SandboxID) bool) { yield(ids.SandboxID(f.GetId())) }
	case !ok:
		return maps.Values(r.byID)
	}
	return func(yield func(*Record) bool) {
		for id := range found {
			if rec := r.byID[id]; rec != nil && !yield(rec) {
				return
			}
		}
	}
}

// selects says whether a filter lets a sandbox through.
func selects(f *cri.PodSandboxFilter, rec *Record) bool {
	return strings.HasPrefix(string(rec.ID), f.GetId()) && (f.GetState() == nil || f.GetState().GetState() == rec.State()) &&
		index.Selects(f.GetLabelSelector(), rec.Config().GetLabels())
}
