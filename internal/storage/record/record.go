// Package record keeps the directories of volumes, with what is known of each:
//
//	DIR/NAME/volume.json   the record: plan.Record, as JSON
//	DIR/NAME/data          what pods get
//	DIR/.snapshots/        package snapshot's
//	DIR/.removing/         what is removed in the background
//	DIR/.monopod           who has the directory, for people
//
// A record is written, and durable, before anything that it tells of is made, so that what a kill leaves is completed or undone by it. No file of a volume is
// removed here but by Throw, which takes the whole directory away in one step.
package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/private"
	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/kit/atomicfile"
	"monopod.dev/monopod/internal/storage/plan"
)

// file is the name of a record.
const file = "volume.json"

// Store is a directory of volumes. Its methods are safe for concurrent use; who changes one volume does so alone.
type Store struct {
	dir  string
	node string
	bin  *tree.Bin

	mu   sync.Mutex
	all  map[string]plan.Record
	odd  map[string]error // directories whose record cannot be read, by name
	made bool             // dir is there
	lock *lock            // nil: others may have dir as well
	last uint32           // the newest quota ID
}

// firstQuotaID is where the IDs of volumes' projects begin: those of people, and of agents for pods' own directories, are small.
const firstQuotaID = 0x6d700000

// NewQuotaID returns the ID of a project that no volume has, and of which free says that nobody else has it either.
func (s *Store) NewQuotaID(free func(uint32) bool) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = max(s.last, firstQuotaID)
	for _, r := range s.all {
		s.last = max(s.last, r.QuotaID)
	}
	for s.last++; !free(s.last); s.last++ { // there are more than disks have room for
	}
	return s.last
}

// Open reads a node's records in a directory, which need not be there yet; those of other nodes are odd. alone: nobody else may have the directory until Close;
// without, nothing is changed.
func Open(dir, node string, alone bool, log *slog.Logger) (_ *Store, err error) {
	s := &Store{dir: dir, node: node, bin: tree.NewBin(filepath.Join(dir, tree.BinName), log), all: map[string]plan.Record{}, odd: map[string]error{}}
	if alone {
		s.lock = &lock{dir: dir, node: node}
		if err := s.lock.take(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		defer func() {
			if err != nil {
				s.Close()
			}
		}()
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("volumes: %w", err)
	}
	s.made = true
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") || e.Name() == "lost+found" {
			continue
		}
		r, err := s.read(e.Name())
		if err != nil {
			s.odd[e.Name()] = err
			continue
		}
		if r != nil {
			s.all[r.Name] = *r
		} else if alone {
			s.sweep(e.Name())
		}
	}
	return s, nil
}

// sweep removes a directory that a kill has left before its record was there. One that somebody else may have made, or has put something into, stays.
func (s *Store) sweep(name string) {
	if !strings.HasPrefix(name, "pvc-") {
		return
	}
	entries, err := os.ReadDir(s.Path(name))
	if err != nil || slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return !strings.HasPrefix(e.Name(), atomicfile.Temporary(file)) }) {
		return
	}
	for _, e := range entries {
		_ = os.Remove(filepath.Join(s.Path(name), e.Name()))
	}
	_ = unix.Rmdir(s.Path(name)) // what cannot be removed now is seen again at the next start
}

// read reads one record; nil: the directory is empty, as a kill leaves it before the record is there.
func (s *Store) read(name string) (*plan.Record, error) {
	raw, err := os.ReadFile(filepath.Join(s.dir, name, file))
	if errors.Is(err, fs.ErrNotExist) {
		if entries, derr := os.ReadDir(filepath.Join(s.dir, name)); derr != nil || slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name()[0] != '.' }) {
			return nil, errors.Join(err, derr)
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r plan.Record
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(s.dir, name, file), err)
	}
	if err := r.Check(name, s.node); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(s.dir, name, file), err)
	}
	return &r, nil
}

// Bin is where what is removed goes.
func (s *Store) Bin() *tree.Bin { return s.bin }

// Dir is the directory of all volumes.
func (s *Store) Dir() string { return s.dir }

// Path is the directory of a volume, Data what pods get of it.
func (s *Store) Path(name string) string { return filepath.Join(s.dir, name) }

// Data is what pods get of a volume.
func (s *Store) Data(name string) string { return filepath.Join(s.dir, name, plan.DataDir) }

// Get returns a record; false: there is none.
func (s *Store) Get(name string) (plan.Record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.all[name]
	return r, ok
}

// Has says whether what pods get of a volume is on the disk.
func (s *Store) Has(name string) bool {
	_, err := os.Lstat(s.Data(name))
	return !errors.Is(err, fs.ErrNotExist)
}

// Empty says whether nobody has written to a volume's directory: a directory without a file in it, or nothing at all.
func (s *Store) Empty(name string) (bool, error) {
	info, err := os.Lstat(s.Data(name))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil || !info.IsDir() {
		return err == nil, err
	}
	entries, err := os.ReadDir(s.Data(name))
	return len(entries) == 0, err
}

// All are the records, by name.
func (s *Store) All() []plan.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]plan.Record, 0, len(s.all))
	for _, r := range s.all {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b plan.Record) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Odd are the directories whose record cannot be read, with the reason. Nobody touches them.
func (s *Store) Odd() map[string]error { return s.odd }

// Put writes a record. When it returns without an error the record is durable.
func (s *Store) Put(r plan.Record) error {
	if err := s.odd[r.Name]; err != nil {
		return fmt.Errorf("there is a directory of the volume, whose record cannot be read: %w", err)
	}
	raw, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	if err := s.make(); err != nil {
		return err
	}
	switch err := os.Mkdir(s.Path(r.Name), 0o700); {
	case err == nil:
		err = atomicfile.SyncDir(s.dir)
		if err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrExist):
		return err
	}
	if err := atomicfile.Write(filepath.Join(s.Path(r.Name), file), append(raw, '\n'), 0o600); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[r.Name] = r
	return nil
}

// make makes the directory of all volumes, which nobody but root may enter: what lies in it has the modes that pods give it.
func (s *Store) make() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made {
		return s.lock.take() // of what is there now: a disk may have been mounted
	}
	if err := private.Dir(s.dir); err != nil {
		return err
	}
	if err := atomicfile.SyncDir(filepath.Dir(s.dir)); err != nil {
		return err
	}
	if err := s.lock.take(); err != nil {
		return err
	}
	s.made = true
	return nil
}

// Find reads the record of a volume that was not there before: its disk may have been mounted since. false: it is not there now.
func (s *Store) Find(name string) (plan.Record, bool, error) {
	if r, ok := s.Get(name); ok || s.odd[name] != nil {
		return r, ok, s.odd[name]
	}
	if there, err := s.OnDisk(name); !there {
		return plan.Record{}, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.lock.take(); err != nil {
		return plan.Record{}, false, err
	}
	r, err := s.read(name)
	if err != nil || r == nil {
		return plan.Record{}, false, err
	}
	s.all[name], s.made = *r, true
	return *r, true, nil
}

// OnDisk says whether there is something by the name of a volume's record, known or not.
func (s *Store) OnDisk(name string) (bool, error) {
	_, err := os.Lstat(filepath.Join(s.Path(name), file))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Close lets others have the directory.
func (s *Store) Close() { s.lock.drop() }

// Throw takes a volume's directory away, with its record and all that is in it. What is mounted there is an error, and stays.
func (s *Store) Throw(ctx context.Context, name string) error {
	if err := s.bin.Throw(ctx, s.Path(name)); err != nil {
		return err
	}
	if err := atomicfile.SyncDir(s.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, name)
	return nil
}

// Run removes what was thrown away, until ctx ends.
func (s *Store) Run(ctx context.Context) error { return s.bin.Run(ctx) }

// Leave removes at once what was thrown away, and then the directory, if nothing is left in it that is not the Store's. One that is a mount point or a link stays.
func (s *Store) Leave(ctx context.Context) error {
	if err := tree.Remove(ctx, filepath.Join(s.dir, tree.BinName)); err != nil && !errors.Is(err, unix.ENOTDIR) {
		return err
	}
	_ = os.Remove(filepath.Join(s.dir, ownerFile))
	switch err := unix.Rmdir(s.dir); {
	case err == nil, errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EBUSY), errors.Is(err, unix.ENOTDIR):
		return nil
	default:
		return &os.PathError{Op: "rmdir", Path: s.dir, Err: err}
	}
}
