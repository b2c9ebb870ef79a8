package records

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/kit/keyed"
	"monopod.dev/monopod/internal/runtime/abandon"
	"monopod.dev/monopod/internal/state"
)

// Known holds the records of a Store in memory, with the ways by which a few of many are found. The Store calls it under its lock, and so is
// it read (Store.Read). A record that it was given is never changed, but replaced.
type Known[ID ~string, R any] interface {
	// Get returns the record of an id; nil: there is none.
	Get(id ID) *R
	// Put adds a record, or replaces that of the same id.
	Put(rec *R)
	// Drop removes the record of an id. One that is not there is no error.
	Drop(id ID)
}

// Config is what a Store works with.
type Config[ID ~string, R any] struct {
	DB *state.DB
	// Table is the table's name; that of what clients have given up is Table with "-abandoned" behind it.
	Table string
	// Kind is the word for what a record describes, such as "sandbox".
	Kind string
	// Dir holds a folder for each, by its id, with the copy of its record. It belongs to this boot.
	Dir   string
	Known Known[ID, R]
	ID    func(*R) ID
	// Shown says that clients may know of what a record describes. It becomes so once, by the Modify that ends its making.
	Shown func(*R) bool
	// Changed hears of each change after it can be seen, those of one record one after another. It must not call Modify or Forget. May be nil.
	Changed func(before, after *R)
	// Forgotten hears of each record that was deleted, as Changed does. May be nil.
	Forgotten func(*R)
	// AbandonAfter is how long what clients have given up waits for them; 0 is abandon.Default.
	AbandonAfter time.Duration
	Log          *slog.Logger
}

// Store holds all records of one kind, R, by their ids. All methods are safe for concurrent use.
type Store[ID ~string, R any] struct {
	cfg    Config[ID, R]
	table  state.Table[R]
	making abandon.Group[ID]   // what is being made
	given  *abandon.Ledger[ID] // what clients have given up
	unread Unread
	// restored are the records that were taken from their copies; Restore stores them.
	restored []R

	// writing is held from the reading of a record to the publication of what became of it; by id. It is taken before mu.
	writing keyed.Lock[ID]

	mu sync.RWMutex // guards Config.Known
}

// Open reads what is stored. It writes nothing: a record that was lost, and is known by its copy, is stored by Restore. What cannot be read is
// logged and left as it is, see Unread.
func Open[ID ~string, R any](cfg Config[ID, R]) *Store[ID, R] {
	s := &Store[ID, R]{cfg: cfg, table: state.NewTable[R](cfg.DB, cfg.Table)}
	recs, terr := s.table.List()
	if terr != nil {
		cfg.Log.Error("some records cannot be read; what lives of what they describe goes on", "records", cfg.Table, "error", terr)
	}
	copies, cerr := ReadCopies[R](cfg.Dir)
	if cerr != nil {
		cfg.Log.Error("some copies of records cannot be read", "records", cfg.Table, "error", cerr)
	}
	s.unread = UnreadOf(terr).With(cerr)
	refused := newer(terr)
	var ids []ID
	for id, rec := range recs {
		ids = append(ids, ID(id))
		cfg.Known.Put(&rec)
	}
	for id, rec := range copies {
		if _, ok := recs[id]; ok || string(cfg.ID(&rec)) != id || slices.Contains(refused, id) {
			continue
		}
		if cfg.Shown(&rec) { // else it was intended, and no more than that
			cfg.Log.Warn("a record was lost, it is taken from its copy", "records", cfg.Table, "id", id)
			s.restored = append(s.restored, rec)
		}
		ids = append(ids, ID(id))
		cfg.Known.Put(&rec)
	}
	var err error
	s.given, err = abandon.New(abandon.Config{DB: cfg.DB, Table: cfg.Table + "-abandoned", After: cfg.AbandonAfter, Log: cfg.Log}, ids)
	if err != nil {
		cfg.Log.Error("what was given up is not all known; that which cannot be read stays", "records", cfg.Table, "error", err)
	}
	return s
}

// Restore stores the records that Open took from their copies.
func (s *Store[ID, R]) Restore() error {
	var errs []error
	for _, rec := range s.restored {
		errs = append(errs, s.table.Put(string(s.cfg.ID(&rec)), rec))
	}
	return errors.Join(errs...)
}

// Unread says that something is stored under an id which could not be read: what it describes is to be left as it is.
func (s *Store[ID, R]) Unread(id ID) bool { return s.unread.Has(string(id)) }

// Dir is the folder of what a record describes.
func (s *Store[ID, R]) Dir(id ID) string { return filepath.Join(s.cfg.Dir, string(id)) }

// Read calls f while Config.Known does not change.
func (s *Store[ID, R]) Read(f func()) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	f()
}

// Lookup returns the record of an id, that too of what clients may not know of: half made or half removed.
func (s *Store[ID, R]) Lookup(id ID) (rec R, ok bool) {
	s.Read(func() {
		if known := s.cfg.Known.Get(id); known != nil {
			rec, ok = *known, true
		}
	})
	return rec, ok
}

// Get returns the record of what clients may know of, by its id, else errdefs.ErrNotFound.
func (s *Store[ID, R]) Get(id ID) (R, error) {
	if rec, ok := s.Lookup(id); ok && s.cfg.Shown(&rec) {
		return rec, nil
	}
	var none R
	return none, s.notFound(id)
}

// Has says whether Get knows the id.
func (s *Store[ID, R]) Has(id ID) (has bool) {
	s.Read(func() {
		rec := s.cfg.Known.Get(id)
		has = rec != nil && s.cfg.Shown(rec)
	})
	return has
}

func (s *Store[ID, R]) notFound(id ID) error {
	return fmt.Errorf("%s %q: %w", s.cfg.Kind, id, errdefs.ErrNotFound)
}

// Add takes down that something is to be made. What is made of it ends with this boot, or is found by recovery when it has no record, so the
// record needs to outlive this process, not the machine: it is in its folder only, and not synced. Nobody else may have the id.
func (s *Store[ID, R]) Add(rec R) error {
	id := s.cfg.ID(&rec)
	dir := s.Dir(id)
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		if err = WriteCopy(dir, rec); err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}
	if err != nil {
		return fmt.Errorf("store %s %s: %w", s.cfg.Kind, id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg.Known.Put(&rec)
	return nil
}

// Modify stores what f makes of a record, then lets it be seen, and returns it. It is the one place where records change. f may say that
// nothing is to change by returning false; it is called once, and waits for nothing. With a record that clients may know of from now on it is
// stored that its client has yet to get it. One that is not there is errdefs.ErrNotFound.
func (s *Store[ID, R]) Modify(id ID, f func(*R) bool) (R, error) {
	defer s.writing.Wait(id)()
	var none R
	before, ok := s.Lookup(id)
	if !ok {
		return none, s.notFound(id)
	}
	rec := before
	if !f(&rec) {
		return before, nil
	}
	fresh := s.cfg.Shown(&rec) && !s.cfg.Shown(&before)
	if err := s.cfg.DB.Update(func(tx *state.Tx) error {
		if fresh {
			if err := s.given.Expect(tx, id); err != nil {
				return err
			}
		}
		return s.table.PutTx(tx, string(id), rec)
	}); err != nil {
		return none, fmt.Errorf("store %s %s: %w", s.cfg.Kind, id, err)
	}
	if fresh {
		s.given.Expected(id)
	}
	s.mu.Lock()
	s.cfg.Known.Put(&rec)
	s.mu.Unlock()
	s.copy(&rec)
	if s.cfg.Changed != nil {
		s.cfg.Changed(&before, &rec)
	}
	return rec, nil
}

// copy renews a record's copy. Without one what it describes lives as well, until the table is lost.
func (s *Store[ID, R]) copy(rec *R) {
	if !s.cfg.Shown(rec) {
		return
	}
	id := s.cfg.ID(rec)
	if err := WriteCopy(s.Dir(id), rec); err != nil && !os.IsNotExist(err) {
		s.cfg.Log.Warn("a record could not be copied", "records", s.cfg.Table, "id", id, "error", err)
	}
}

// Forget deletes a record, when nothing is left of what it describes. One that is not there is no error.
func (s *Store[ID, R]) Forget(id ID) error {
	defer s.writing.Wait(id)()
	rec, ok := s.Lookup(id)
	if !ok {
		return nil
	}
	if err := s.table.Delete(string(id)); err != nil {
		return fmt.Errorf("delete %s %s: %w", s.cfg.Kind, id, err)
	}
	s.mu.Lock()
	s.cfg.Known.Drop(id)
	s.mu.Unlock()
	s.given.Forget(id)
	if s.cfg.Forgotten != nil {
		s.cfg.Forgotten(&rec)
	}
	return nil
}

// Make joins the work that makes something and returns its id, and claims what it has made; what nobody waits for any more when it is made is
// undone after Config.AbandonAfter, if nobody claims it.
func (s *Store[ID, R]) Make(ctx context.Context, w abandon.Work[ID]) (ID, error) {
	return s.given.Join(ctx, &s.making, w)
}

// Claim says that somebody knows of what a record describes: it was not given up, or is not any more.
func (s *Store[ID, R]) Claim(id ID) {
	if s.Has(id) {
		s.given.Claim(id)
	}
}

// Undoing is nil unless something is being undone that was given up; then it is closed when that is over.
func (s *Store[ID, R]) Undoing(id ID) <-chan struct{} { return s.given.Undoing(id) }

// UndoAbandoned undoes what clients have given up, until ctx ends.
func (s *Store[ID, R]) UndoAbandoned(ctx context.Context, undo abandon.Undo[ID]) error {
	return s.given.Run(ctx, undo)
}
