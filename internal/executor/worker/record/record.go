//go:build cgo

// Package record is what is stored of a container while this machine is up: enough for the next worker to go on with it.
//
// A record is written before the step that it tells of. Each is a file of its own, and a version says whether this program knows its format.
package record

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/worker/group"
	"monopod.dev/monopod/internal/host/systemd"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/kit/volatilefile"
)

// recordVersion is the version of the record's format.
const recordVersion = 1

// Stage says how far a container has come, as the record knows it. It is written before the step that it names, so that a
// worker that finds it finishes or undoes the step:
//
//	creating -> created -> running -> exited -> deleting -> (no record)
//
// creating and deleting may be found half done: the former is undone, the latter finished.
type Stage string

const (
	StageCreating Stage = "creating"
	StageCreated  Stage = "created"
	StageRunning  Stage = "running" // Start was asked for; whether the program runs is the kernel's to say
	StageExited   Stage = "exited"
	StageDeleting Stage = "deleting"
)

// Record is what is stored of a container, in DIR/containers/ID/record.json.
type Record struct {
	Version int             `json:"version"`
	BootID  string          `json:"bootID"`
	ID      ids.ContainerID `json:"id"`
	// Kind is protocol.KindPodInit, or empty for a container.
	Kind string `json:"kind,omitempty"`
	// Pin is where a pod's init has its PID namespace pinned.
	Pin     string `json:"pin,omitempty"`
	Bundle  string `json:"bundle"`
	LogPath string `json:"logPath,omitempty"`
	// Runtime is the OCI runtime that the container was made by; nil: native.
	Runtime *protocol.OCIRuntime `json:"runtime,omitempty"`
	// LogMaxBytes and LogMaxFiles are protocol.CreateRequest's.
	LogMaxBytes int64 `json:"logMaxBytes,omitempty"`
	LogMaxFiles int   `json:"logMaxFiles,omitempty"`
	// LogFixed: the last ReopenLog has failed, so that no new file may be made.
	LogFixed  bool  `json:"logFixed,omitempty"`
	Stdin     bool  `json:"stdin,omitempty"`
	StdinOnce bool  `json:"stdinOnce,omitempty"`
	Terminal  bool  `json:"terminal,omitempty"`
	Stage     Stage `json:"stage"`
	// Cgroups are the container's cgroup directories: by controller on v1, under "" on v2.
	Cgroups map[string]string `json:"cgroups,omitempty"`
	// Scope is systemd's unit that those are below, as SLICE:PREFIX:NAME; empty: there is none.
	Scope string `json:"scope,omitempty"`
	// Resources are the container's as updates have made them; nil: as in the bundle.
	Resources *specs.LinuxResources `json:"resources,omitempty"`
	// Updating holds the values from before an update that is under way.
	Updating  group.Limits `json:"updating,omitempty"`
	PID       int          `json:"pid,omitempty"`
	StartTime uint64       `json:"startTime,omitempty"` // clock ticks since the boot
	// Pipes are the inode numbers of the container's pipes, by the names of package hold: after the keeper's death they
	// tell whether a descriptor of the process is still the one that it was given.
	Pipes map[string]uint64 `json:"pipes,omitempty"`
	// Spawned: package spawn has started it; else libcontainer.
	Spawned bool `json:"spawned,omitempty"`
	// Adopted: the keeper that was the process's parent has died, and a stranger reaps it.
	Adopted   bool      `json:"adopted,omitempty"`
	CreatedAt time.Time `json:"createdAt,omitzero"`
	StartedAt time.Time `json:"startedAt,omitzero"`
	// StartError: the program cannot be executed, or a poststart hook has failed. The container exists without a process; Start returns the error.
	StartError string         `json:"startError,omitempty"`
	Exit       *protocol.Exit `json:"exit,omitempty"`
}

// Group is the container's cgroups.
func (r *Record) Group() group.Group {
	g := group.Group{Dirs: r.Cgroups}
	if r.Scope == "" {
		return g
	}
	if s, ok, err := systemd.ParseScope(r.Scope); err == nil && ok {
		g.Scope = &s
	}
	return g
}

// Phase is how far the container has come, for a client.
func (r *Record) Phase() protocol.Phase {
	switch {
	case r.Exit != nil:
		return protocol.Exited
	case !r.StartedAt.IsZero():
		return protocol.Running
	}
	return protocol.Created
}

// State is what a client is told of the container.
func (r *Record) State() protocol.ContainerState {
	s := protocol.ContainerState{ID: r.ID, Kind: r.Kind, Bundle: r.Bundle, Phase: r.Phase(), CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, Exit: r.Exit}
	if r.Exit == nil {
		s.PID = r.PID
	}
	return s
}

// CheckContainer is an error for what is no container with a process of its user's: a pod's init has neither stdio nor execs.
func (r *Record) CheckContainer() error {
	if r.Kind == protocol.KindPodInit {
		return fmt.Errorf("%w: %s is a pod's init, not a container", errdefs.ErrInvalidArgument, r.ID)
	}
	return nil
}

// Store is the directory of records.
type Store struct{ dir string }

// containersDir is where the records are in an executor's directory.
func containersDir(dir string) string { return filepath.Join(dir, "containers") }

// Open opens the records in an executor's directory.
func Open(dir string) (*Store, error) {
	s := &Store{containersDir(dir)}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("container records: %w", err)
	}
	return s, nil
}

// File is where a file lies that belongs to a container, and goes with its record.
func (s *Store) File(id ids.ContainerID, name string) string {
	return filepath.Join(s.dir, string(id), name)
}

func (s *Store) path(id ids.ContainerID) string { return s.File(id, "record.json") }

// Put writes a record.
func (s *Store) Put(r Record) error {
	r.Version = recordVersion
	err := volatilefile.Keep(s.path(r.ID), r)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.Mkdir(filepath.Join(s.dir, string(r.ID)), 0o700); err == nil {
			if err = volatilefile.Keep(s.path(r.ID), r); err != nil {
				os.Remove(filepath.Join(s.dir, string(r.ID))) // empty, or the next worker finds it
			}
		}
	}
	if err != nil {
		return fmt.Errorf("container record: %w", err)
	}
	return nil
}

// Remove removes a record, with the files beside it.
func (s *Store) Remove(id ids.ContainerID) error {
	return os.RemoveAll(filepath.Join(s.dir, string(id)))
}

// Load returns all records. One that cannot be read spoils nobody else: its error comes along.
func (s *Store) Load() (recs []Record, errs []error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, []error{err}
	}
	for _, e := range entries {
		id := ids.ContainerID(e.Name())
		var r Record
		err := volatilefile.Read(s.path(id), &r)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			os.Remove(s.path(id)) // made, and nothing put into it: nothing was done yet
			os.Remove(filepath.Join(s.dir, e.Name()))
		case err != nil:
			errs = append(errs, err)
		case r.Version > recordVersion:
			errs = append(errs, tooNew(id, r))
		default:
			recs = append(recs, r)
		}
	}
	return recs, errs
}

// Check finds records in an executor's directory that this program could not read. It changes nothing, while another process works on them.
func Check(dir string) error {
	s := Store{containersDir(dir)}
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		id := ids.ContainerID(e.Name())
		var r Record
		err := volatilefile.Read(s.path(id), &r)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it comes, or goes
		case err != nil:
			return err
		case r.Version > recordVersion:
			return tooNew(id, r)
		}
	}
	return nil
}

func tooNew(id ids.ContainerID, r Record) error {
	return fmt.Errorf("record of container %s has version %d, this program knows versions up to %d: use a newer monopod-executor", id, r.Version, recordVersion)
}

// One returns one record; fs.ErrNotExist where there is none.
func (s *Store) One(id ids.ContainerID) (r Record, err error) {
	err = volatilefile.Read(s.path(id), &r)
	return r, err
}
