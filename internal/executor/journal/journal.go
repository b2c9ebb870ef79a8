// Package journal records how processes ended: one file an exit, written before anybody is told and before the zombie
// is reaped. It is written by whoever is the process's parent at its end, the worker or the keeper.
//
// Format: DIR/<pid>-<start time>.json holds one Exit. A pid and its start time name one process of one boot, so an
// entry is written once, and a second attempt (the worker was killed between journalling and reaping, and the keeper finds
// the zombie) changes nothing.
//
// The room for an entry is taken when the process is made, so that its end can be told when the disk is full: Reserve makes the file, with
// nothing in it.
package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"monopod.dev/monopod/internal/kit/volatilefile"
)

// DirName is the name of the journal's directory inside an executor's directory.
const DirName = "journal"

// Version is the format's version.
const Version = 1

// Exit is how a process ended.
type Exit struct {
	Version   int       `json:"version"`
	BootID    string    `json:"bootID"`
	PID       int       `json:"pid"`
	StartTime uint64    `json:"startTime"` // clock ticks since the boot
	Code      int       `json:"code"`      // the exit status, or 128 plus the signal's number
	At        time.Time `json:"at"`
	// Executed: the process had executed a program. Without it, it was still the executor's own init code.
	Executed bool `json:"executed"`
}

// Journal is a directory of exits. Methods are safe for concurrent use, also by several processes.
type Journal struct {
	dir    string
	bootID string
}

// Open makes the directory if it is missing.
func Open(dir, bootID string) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("journal of exits: %w", err)
	}
	return &Journal{dir: dir, bootID: bootID}, nil
}

func (j *Journal) path(pid int, startTime uint64) string {
	return filepath.Join(j.dir, fmt.Sprintf("%d-%d.json", pid, startTime))
}

// entrySize is more than an entry takes, in bytes.
const entrySize = 1 << 10

// Reserve takes the room for a process's exit. It may be repeated, and changes nothing where the exit is recorded already. A process that
// it fails for should not be let go.
func (j *Journal) Reserve(pid int, startTime uint64) error {
	if err := volatilefile.Reserve(j.path(pid, startTime), entrySize); err != nil {
		return fmt.Errorf("room in the journal for the exit of process %d: %w", pid, err)
	}
	return nil
}

// Put records the exit, unless it is recorded already, and returns what is recorded.
func (j *Journal) Put(e Exit) (Exit, error) {
	if old, ok, err := j.Get(e.PID, e.StartTime); err == nil && ok {
		return old, nil
	}
	e.Version, e.BootID = Version, j.bootID
	if err := volatilefile.Write(j.path(e.PID, e.StartTime), e); err != nil {
		return Exit{}, fmt.Errorf("journal the exit of process %d: %w", e.PID, err)
	}
	return e, nil
}

// Get returns the exit of a process of this boot; ok is false when none is recorded.
func (j *Journal) Get(pid int, startTime uint64) (e Exit, ok bool, err error) {
	err = volatilefile.Read(j.path(pid, startTime), &e)
	if errors.Is(err, fs.ErrNotExist) {
		return Exit{}, false, nil
	}
	if err != nil {
		return Exit{}, false, err
	}
	if e.Version > Version {
		return Exit{}, false, fmt.Errorf("%s has version %d, this program knows versions up to %d", j.path(pid, startTime), e.Version, Version)
	}
	return e, e.BootID == j.bootID, nil
}

// Remove forgets the exit. One that is not there is no error.
func (j *Journal) Remove(pid int, startTime uint64) error {
	err := os.Remove(j.path(pid, startTime))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
