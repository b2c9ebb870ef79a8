package sandbox

import (
	"log/slog"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/runtime/records"
	"monopod.dev/monopod/internal/state"
)

// RecordsConfig is what Records work with.
type RecordsConfig struct {
	DB      *state.DB
	Folders Folders
	// AbandonAfter is how long a sandbox stays whose client has gone before the answer; 0 is abandon.Default.
	AbandonAfter time.Duration
	Log          *slog.Logger
}

// Records are all sandboxes: what is stored of them (records.Store), and how one of many is found. All methods are safe for concurrent use.
type Records struct {
	*records.Store[ids.SandboxID, Record]
	known known // read by Store.Read
}

// OpenRecords reads the stored sandboxes.
func OpenRecords(cfg RecordsConfig) *Records {
	r := &Records{}
	r.Store = records.Open(records.Config[ids.SandboxID, Record]{DB: cfg.DB, Table: "sandboxes", Kind: "sandbox", Dir: cfg.Folders.Root, Known: &r.known,
		ID: func(rec *Record) ids.SandboxID { return rec.ID }, Shown: (*Record).visible, AbandonAfter: cfg.AbandonAfter, Log: cfg.Log})
	return r
}

// List returns the sandboxes that clients may know of, the oldest first.
func (r *Records) List() []Record { return r.Select(nil) }

// Select returns those of them that a filter lets through, all with one that is nil, the oldest first. To select by a whole id or by labels takes
// time by how many have that id, or the rarest of the labels.
func (r *Records) Select(f *cri.PodSandboxFilter) []Record {
	var found []*Record
	r.Read(func() { found = r.known.selected(f) })
	all := make([]Record, len(found))
	for i, rec := range found {
		all[i] = *rec
	}
	return all
}

// Shared says whether sandboxes of several pods that clients may know of are in a cgroup: a client may name the same parent for several.
func (r *Records) Shared(cgroup string) (shared bool) {
	r.Read(func() { shared = r.known.pods(cgroup) > 1 })
	return shared
}

// all are the records by id, those too of sandboxes that are half made.
func (r *Records) all() map[ids.SandboxID]Record {
	all := map[ids.SandboxID]Record{}
	r.Read(func() {
		for id, rec := range r.known.byID {
			all[id] = *rec
		}
	})
	return all
}

// named finds a sandbox that clients may know of by what Name is made of.
func (r *Records) named(md *cri.PodSandboxMetadata) (rec Record, ok bool) {
	r.Read(func() { rec, ok = r.known.named(md) })
	return rec, ok
}

// shares says that another sandbox has the same cgroup and made it: that of the same pod, with another attempt number.
func (r *Records) shares(rec *Record) (shares bool) {
	r.Read(func() { shares = r.known.shares(rec) })
	return shares
}
