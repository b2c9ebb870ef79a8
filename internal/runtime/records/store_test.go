package records

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/runtime/abandon"
	"monopod.dev/monopod/internal/state"
)

// thing is what the records of these tests describe.
type thing struct {
	ID    string
	Ready bool
	N     int
}

const thingVersion = 2

func (r thing) MarshalJSON() ([]byte, error) {
	type plain thing
	return json.Marshal(struct {
		Version int `json:"version"`
		plain
	}{thingVersion, plain(r)})
}

func (r *thing) UnmarshalJSON(raw []byte) error {
	if err := CheckVersion(raw, thingVersion); err != nil {
		return err
	}
	type plain thing
	return json.Unmarshal(raw, (*plain)(r))
}

type things map[string]*thing

func (k things) Get(id string) *thing { return k[id] }
func (k things) Put(rec *thing)       { k[rec.ID] = rec }
func (k things) Drop(id string)       { delete(k, id) }

// rig is a Store with what it stands on.
type rig struct {
	*testing.T
	dir   string
	db    *state.DB
	store *Store[string, thing]
	known things
	told  []string // what Changed and Forgotten heard
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t, dir: t.TempDir()}
	r.open()
	t.Cleanup(func() { r.db.Close() })
	return r
}

func (r *rig) check(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) open() {
	r.Helper()
	var err error
	r.db, _, err = state.Open(state.Config{Path: filepath.Join(r.dir, "state.db")})
	r.check(err)
	r.load()
}

// load is a restart of the process.
func (r *rig) load() {
	r.known = things{}
	r.store = Open(Config[string, thing]{DB: r.db, Table: "things", Kind: "thing", Dir: filepath.Join(r.dir, "run"), Known: r.known,
		ID: func(t *thing) string { return t.ID }, Shown: func(t *thing) bool { return t.Ready }, AbandonAfter: time.Millisecond,
		Changed: func(before, after *thing) {
			r.told = append(r.told, after.ID)
			if before.ID != after.ID || *before == *after {
				r.Errorf("%v became %v", before, after)
			}
		},
		Forgotten: func(t *thing) { r.told = append(r.told, "-"+t.ID) },
		Log:       slog.New(slog.DiscardHandler)})
}

func (r *rig) reopen() {
	r.Helper()
	r.check(r.db.Close())
	r.open()
}

func (r *rig) make(id string) {
	r.Helper()
	r.check(r.store.Add(thing{ID: id}))
	_, err := r.store.Modify(id, func(t *thing) bool { t.Ready = true; return true })
	r.check(err)
	r.store.Claim(id)
}

func (r *rig) table() state.Table[json.RawMessage] {
	return state.NewTable[json.RawMessage](r.db, "things")
}

// copy is the file of a copy.
func (r *rig) copy(id string) string { return filepath.Join(r.dir, "run", id, copyName) }

func TestStore(t *testing.T) {
	r := newRig(t)
	r.check(r.store.Add(thing{ID: "a"}))
	if _, err := r.store.Get("a"); !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), `thing "a"`) || r.store.Has("a") {
		t.Errorf("clients know of what is half made: %v", err)
	}
	if rec, ok := r.store.Lookup("a"); !ok || rec.ID != "a" {
		t.Errorf("what is half made is not there: %v, %v", rec, ok)
	}
	if _, err := r.table().Get("a"); !errdefs.IsNotFound(err) {
		t.Errorf("intent was written to the disk: %v", err)
	}
	r.reopen()
	if _, ok := r.store.Lookup("a"); !ok || r.store.Has("a") {
		t.Error("after a restart what is half made is not known, or seen")
	}
	got, err := r.store.Modify("a", func(t *thing) bool { t.Ready, t.N = true, 1; return true })
	if want := (thing{ID: "a", Ready: true, N: 1}); err != nil || got != want || !r.store.Has("a") {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := r.store.Modify("a", func(t *thing) bool { t.N = 7; return false }); err != nil || got.N != 1 {
		t.Errorf("what f has not changed: %v, %v", got, err)
	}
	if _, err := r.store.Modify("b", func(*thing) bool { t.Error("f was called for what is not there"); return true }); !errdefs.IsNotFound(err) {
		t.Errorf("a record that is not there: %v", err)
	}
	if !slices.Equal(r.told, []string{"a"}) {
		t.Errorf("told %v", r.told)
	}
	r.reopen()
	if got, err := r.store.Get("a"); err != nil || got.N != 1 {
		t.Errorf("after a restart %v, %v", got, err)
	}
	r.check(errors.Join(r.store.Forget("a"), r.store.Forget("a"), os.RemoveAll(r.store.Dir("a"))))
	if !slices.Equal(r.told, []string{"a", "-a"}) || len(r.known) != 0 {
		t.Errorf("told %v, known %v", r.told, r.known)
	}
	r.reopen()
	if len(r.known) != 0 {
		t.Errorf("after a restart %v", r.known)
	}
}

// TestModifyIsOneWriter: changes of one record that come at once are all kept.
func TestModifyIsOneWriter(t *testing.T) {
	r := newRig(t)
	r.make("a")
	const writers = 20
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			if _, err := r.store.Modify("a", func(t *thing) bool { t.N++; return true }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	r.reopen()
	if got, err := r.store.Get("a"); err != nil || got.N != writers {
		t.Errorf("%v, %v", got, err)
	}
}

// TestWhatCannotBeStoredIsNotSeen: a change that is not on the disk was none.
func TestWhatCannotBeStoredIsNotSeen(t *testing.T) {
	r := newRig(t)
	r.make("a")
	r.told = nil
	r.check(r.db.Close())
	if _, err := r.store.Modify("a", func(t *thing) bool { t.N = 5; return true }); err == nil || !strings.Contains(err.Error(), "store thing a") {
		t.Errorf("%v", err)
	}
	if got, err := r.store.Get("a"); err != nil || got.N != 0 || len(r.told) != 0 {
		t.Errorf("%v, %v; told %v", got, err, r.told)
	}
	if err := r.store.Forget("a"); err == nil || !r.store.Has("a") {
		t.Errorf("%v", err)
	}
	r.open()
}

// TestRestored: a record that was lost is taken from its copy, and stored by Restore alone: to load writes nothing.
func TestRestored(t *testing.T) {
	for name, damage := range map[string]func(r *rig) error{
		"lost":    func(r *rig) error { return r.table().Delete("a") },
		"rubbish": func(r *rig) error { return r.table().Put("a", json.RawMessage(`{"ID": 7}`)) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.make("a")
			r.check(damage(r))
			r.reopen()
			if !r.store.Has("a") {
				t.Fatal("it is not known")
			}
			if raw, err := r.table().Get("a"); err == nil && string(raw) != `{"ID":7}` {
				t.Errorf("to load has written %s", raw)
			}
			r.check(r.store.Restore())
			r.check(os.RemoveAll(r.store.Dir("a")))
			r.reopen()
			if !r.store.Has("a") {
				t.Error("it was not stored")
			}
		})
	}
	r := newRig(t)
	r.check(r.store.Add(thing{ID: "half"}))
	r.reopen()
	r.check(r.store.Restore())
	if _, err := r.table().Get("half"); !errdefs.IsNotFound(err) {
		t.Errorf("what was only intended was stored: %v", err)
	}
}

// TestNewerVersion: what a newer program has written is not known, not taken from an older copy, and never written.
func TestNewerVersion(t *testing.T) {
	r := newRig(t)
	for _, id := range []string{"old", "none", "both", "record", "copy"} {
		r.make(id)
	}
	newer := json.RawMessage(`{"version":3,"ID":"x","Ready":true,"More":[1]}`)
	r.check(errors.Join(r.table().Put("old", json.RawMessage(`{"ID":"old","Ready":true}`)), os.Remove(r.copy("old"))))
	for _, id := range []string{"both", "record", "none"} {
		r.check(r.table().Put(id, newer))
	}
	for _, id := range []string{"both", "copy"} {
		r.check(os.WriteFile(r.copy(id), append(newer, '\n'), 0o600))
	}
	r.check(errors.Join(r.table().Delete("copy"), os.Remove(r.copy("none"))))
	r.reopen()
	for _, id := range []string{"none", "both", "record", "copy"} {
		if _, ok := r.store.Lookup(id); ok || !r.store.Unread(id) {
			t.Errorf("%s is known, or to be swept away", id)
		}
	}
	if !r.store.Has("old") || r.store.Unread("old") || r.store.Unread("never") {
		t.Errorf("a record without a version: %v, %v", r.known, r.store.unread)
	}
	r.check(r.store.Restore())
	recs, err := r.table().List()
	r.check(err)
	if len(recs) != 4 || string(recs["both"]) != string(newer) || string(recs["record"]) != string(newer) {
		t.Errorf("records were written: %s", recs)
	}
	_, err = state.NewTable[thing](r.db, "things").List()
	if v := new(VersionError); !errors.As(err, &v) || *v != (VersionError{Version: 3, Newest: 2}) || !strings.Contains(err.Error(), "use a newer monopod") {
		t.Errorf("%v", err)
	}
	if got := slices.Sorted(maps.Keys(r.store.unread.keys)); !slices.Equal(got, []string{"both", "copy", "none", "record"}) {
		t.Errorf("unread: %v", got)
	}
}

func TestCheckVersion(t *testing.T) {
	for raw, want := range map[string]string{
		`{}`: "", `{"version":1}`: "", `{"version":2}`: "", `{"version":null}`: "",
		`{"version":3}`: "version 3, this program knows versions up to 2", `{"version":0}`: "version 0", `{"version":"x"}`: "cannot unmarshal", `[]`: "cannot unmarshal",
	} {
		if err := CheckVersion([]byte(raw), 2); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// TestGivenUp: what nobody claims is undone, also after a restart; what is claimed stays.
func TestGivenUp(t *testing.T) {
	r := newRig(t)
	made := func(id string) func(context.Context) (string, error) {
		return func(context.Context) (string, error) {
			err := r.store.Add(thing{ID: id})
			if err == nil {
				_, err = r.store.Modify(id, func(t *thing) bool { t.Ready = true; return true })
			}
			return id, err
		}
	}
	id, err := r.store.Make(t.Context(), abandon.Work[string]{Key: "k", Do: made("got")})
	if err != nil || id != "got" {
		t.Fatal(id, err)
	}
	_, err = made("lost")(t.Context()) // and then the process dies, before it answers
	r.check(err)
	r.reopen()
	r.store.Claim("got")
	r.store.Claim("never made")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	undone := make(chan string)
	go func() {
		done <- r.store.UndoAbandoned(ctx, func(_ context.Context, id string) error {
			defer func() { undone <- id }()
			return r.store.Forget(id)
		})
	}()
	if id := <-undone; id != "lost" {
		t.Errorf("%s was undone", id)
	}
	cancel()
	<-done
	if _, ok := r.store.Lookup("lost"); ok || !r.store.Has("got") {
		t.Errorf("known are %v", r.known)
	}
}
