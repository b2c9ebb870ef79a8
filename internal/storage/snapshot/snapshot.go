// Package snapshot keeps the snapshots of volumes, with what is known of each:
//
//	DIR/.snapshots/NAME/snapshot.json  the record: Record, as JSON
//	DIR/.snapshots/NAME/data, image    what the volume had (package hold)
//	DIR/.snapshots/.gone-*/            what is being removed
//
// A record is durable before anything of its snapshot is made, and says that the snapshot is whole when it is. What a kill leaves is thrown away at the next start. A
// snapshot belongs to nobody else: it outlives its claim, and goes by its name only.
package snapshot

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"monopod.dev/monopod/internal/host/private"
	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/kit/atomicfile"
	"monopod.dev/monopod/internal/storage/plan"
)

const (
	// dirName is the directory of all snapshots among the volumes, file the name of a record.
	dirName = ".snapshots"
	file    = "snapshot.json"
	// gone begins the names of what is being removed.
	gone = ".gone-"
	// recordVersion is the version of the records that this program writes, and the newest that it reads.
	recordVersion = 1
	// maxName is the longest name of a snapshot.
	maxName = 200
)

// Phase is how far a snapshot is.
//
//	Taking --all of it is there--> Ready --removed by its name--> (gone)
//	   \---a kill, or an error--> (gone)
type Phase string

// The phases.
const (
	Taking Phase = "taking"
	Ready  Phase = "ready"
)

// Record is what is known of a snapshot.
type Record struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	Phase   Phase  `json:"phase"`
	// Temporary: it is for one export, and goes with it.
	Temporary bool `json:"temporary,omitempty"`
	// Node is the name of the node whose it is.
	Node string `json:"node"`
	// Volume is the name of the volume, Claim the claim that had it.
	Volume string        `json:"volume"`
	Claim  plan.Claimant `json:"claim"`
	// Class, AccessModes and Requested are what the claim asked for, Size, Hold and Block what the volume was.
	Class       string                              `json:"class,omitempty"`
	AccessModes []corev1.PersistentVolumeAccessMode `json:"accessModes"`
	Requested   resource.Quantity                   `json:"requested"`
	Size        int64                               `json:"size"`
	Hold        plan.Hold                           `json:"hold"`
	Block       bool                                `json:"block,omitempty"`
	Taken       time.Time                           `json:"taken"`
	// AtOnce: it is of one moment; else its files are of different ones, if a pod wrote to them.
	AtOnce bool `json:"atOnce"`
}

// Check says what is wrong with a record that a node has read from the directory of a name.
func (r *Record) Check(name, node string) error {
	switch {
	case r.Version < 1 || r.Version > recordVersion:
		return fmt.Errorf("it is of version %d, this Monopod knows those up to %d", r.Version, recordVersion)
	case r.Name != name:
		return fmt.Errorf("it is that of the snapshot %q", r.Name)
	case r.Node != node:
		return fmt.Errorf("it is that of the node %q, and this is %q", r.Node, node)
	case r.Phase != Taking && r.Phase != Ready:
		return fmt.Errorf("its phase is %q, which this Monopod does not know", r.Phase)
	case r.Hold != plan.Project && r.Hold != plan.Qgroup && r.Hold != plan.File && r.Hold != plan.Nothing:
		return fmt.Errorf("its volume's size was held by %q, which this Monopod does not know", r.Hold)
	}
	return nil
}

// CheckName says what is wrong with a name that somebody gives a snapshot. The class is InvalidArgument.
func CheckName(name string) error {
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 || len(name) > maxName {
		return fmt.Errorf("a snapshot cannot be called %q: use at most %d lower case letters, digits, '-' and '.', with a letter or digit first and last: %w", name, maxName, errdefs.ErrInvalidArgument)
	}
	return nil
}

// Store is the snapshots of a directory of volumes. Nothing of the disk is kept in memory, which may be mounted late. Its methods are safe for concurrent use.
type Store struct {
	dir  string // of all snapshots
	node string
	bin  *tree.Bin

	mu    sync.Mutex
	users map[string]int // of snapshots, by their names
}

// New returns the snapshots that a node has in a directory of volumes, which need not be there. What is removed goes into bin.
func New(dir, node string, bin *tree.Bin) *Store {
	return &Store{dir: filepath.Join(dir, dirName), node: node, bin: bin, users: map[string]int{}}
}

// Path is the directory of a snapshot.
func (s *Store) Path(name string) string { return filepath.Join(s.dir, name) }

// All are the records, by name, of those that are taken or being taken, and the directories whose record cannot be read, or is another node's. Nobody touches these.
func (s *Store) All() (all []Record, odd map[string]error, err error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	odd = map[string]error{}
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), gone) {
			continue
		}
		r, rerr := s.read(e.Name())
		switch {
		case errors.Is(rerr, fs.ErrNotExist) && s.empty(e.Name()): // as a kill leaves it before the record is there
		case rerr != nil:
			odd[e.Name()] = rerr
		default:
			all = append(all, r)
		}
	}
	return all, odd, err
}

func (s *Store) empty(name string) bool {
	entries, err := os.ReadDir(s.Path(name))
	return err == nil && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name()[0] != '.' })
}

func (s *Store) read(name string) (r Record, err error) {
	path := filepath.Join(s.Path(name), file)
	raw, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	if err = json.Unmarshal(raw, &r); err == nil {
		err = r.Check(name, s.node)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return r, err
}

// Begin makes the directory of a new snapshot, with its record, which says that it is being taken. One that is there already is AlreadyExists.
func (s *Store) Begin(r Record) error {
	r.Version, r.Phase, r.Node = recordVersion, Taking, s.node
	if err := private.Dir(s.dir); err != nil {
		return err
	}
	switch err := os.Mkdir(s.Path(r.Name), 0o700); {
	case errors.Is(err, fs.ErrExist) && s.empty(r.Name):
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("there is a snapshot %s already: choose another name with --name, or remove that one (monopod volume snapshot rm %s): %w", r.Name, r.Name, errdefs.ErrAlreadyExists)
	case err != nil:
		return err
	}
	if err := errors.Join(atomicfile.SyncDir(filepath.Dir(s.dir)), atomicfile.SyncDir(s.dir)); err != nil {
		return err
	}
	return s.write(r)
}

// Finish says that all of a snapshot is there.
func (s *Store) Finish(r Record) error {
	r.Version, r.Phase, r.Node = recordVersion, Ready, s.node
	return s.write(r)
}

func (s *Store) write(r Record) error {
	raw, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(s.Path(r.Name), file), append(raw, '\n'), 0o600)
}

// Use keeps a snapshot from being removed until release. NotFound: there is none of the name.
func (s *Store) Use(name string) (r Record, release func(), err error) {
	if err := CheckName(name); err != nil {
		return r, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err = s.read(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r, nil, fmt.Errorf("there is no snapshot %s: see 'monopod volume snapshot ls': %w", name, errdefs.ErrNotFound)
	case err != nil:
		return r, nil, err
	case r.Phase != Ready:
		return r, nil, fmt.Errorf("the snapshot %s is being taken: try again: %w", name, errdefs.ErrUnavailable)
	}
	s.users[name]++
	return r, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.users[name]--; s.users[name] == 0 {
			delete(s.users, name)
		}
	}, nil
}

// Remove removes a snapshot, unless somebody uses it. drop takes away what keeps a directory from being removed.
func (s *Store) Remove(ctx context.Context, name string, drop func(dir string) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users[name] > 0 {
		return fmt.Errorf("the snapshot %s is being restored or exported: try again: %w", name, errdefs.ErrUnavailable)
	}
	to := s.Path(gone + rand.Text()[:8])
	switch err := os.Rename(s.Path(name), to); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no snapshot %s: see 'monopod volume snapshot ls': %w", name, errdefs.ErrNotFound)
	case err != nil:
		return err
	}
	if err := atomicfile.SyncDir(s.dir); err != nil {
		return err
	}
	return s.throw(ctx, to, drop)
}

func (s *Store) throw(ctx context.Context, dir string, drop func(dir string) error) error {
	if err := drop(dir); err != nil {
		return err
	}
	return s.bin.Throw(ctx, dir)
}

// Sweep removes what a kill has left: snapshots that were not whole, those of exports, and what was being removed. left is called with each of the former before.
func (s *Store) Sweep(ctx context.Context, left func(Record) error, drop func(dir string) error) error {
	all, _, err := s.All()
	errs := []error{err}
	for _, r := range all {
		if r.Phase != Taking && !r.Temporary {
			continue
		}
		if err := left(r); err != nil {
			errs = append(errs, err)
			continue // so that it is told of again
		}
		errs = append(errs, s.Remove(ctx, r.Name, drop))
	}
	return errors.Join(append(errs, s.emptied(ctx, drop))...)
}

// emptied removes what was being removed.
func (s *Store) emptied(ctx context.Context, drop func(dir string) error) error {
	half, err := filepath.Glob(filepath.Join(s.dir, gone+"*"))
	errs := []error{err}
	for _, dir := range half {
		errs = append(errs, s.throw(ctx, dir, drop))
	}
	return errors.Join(errs...)
}

// Clear removes all that the node has, and the directory, if nothing is left in it.
func (s *Store) Clear(ctx context.Context, drop func(dir string) error) error {
	all, _, err := s.All()
	errs := []error{err}
	for _, r := range all {
		errs = append(errs, s.Remove(ctx, r.Name, drop))
	}
	errs = append(errs, s.emptied(ctx, drop))
	_ = os.Remove(s.dir) // what is another's stays in it
	return errors.Join(errs...)
}

// Of are the names of the snapshots that there are of each volume.
func (s *Store) Of() (map[string][]string, error) {
	all, _, err := s.All()
	of := map[string][]string{}
	for _, r := range all {
		if !r.Temporary && r.Phase == Ready {
			of[r.Volume] = append(of[r.Volume], r.Name)
		}
	}
	for _, name := range slices.Collect(maps.Keys(of)) {
		slices.Sort(of[name])
	}
	return of, err
}
