package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/atomicfile"
)

// tally is what is stored, as JSON, by the import path of a package. Its version changes with the meaning of a field; another version is
// refused, as it may be in use by another checkout.
type tally struct {
	Version  int                `json:"version"`
	Packages map[string][]entry `json:"packages"`
}

const tallyVersion = 1

// entry is about a package as it was built from one state of its sources.
type entry struct {
	// Key is that of pkg.
	Key string `json:"key"`
	// Commit is where the package was run last, for people.
	Commit string `json:"commit"`
	// Clean is the number of rounds that passed since the last failure.
	Clean    int       `json:"clean"`
	Failures []failure `json:"failures,omitempty"`
	Last     time.Time `json:"last"`
}

type failure struct {
	At     time.Time `json:"at"`
	Commit string    `json:"commit"`
	// Seed repeats the order: go test -shuffle SEED.
	Seed string `json:"seed"`
	// Tests are the functions that failed; none where the process ended by itself between them.
	Tests []string `json:"tests,omitempty"`
	// Log is the file with the whole output.
	Log string `json:"log"`
	// Forgotten is why it is not listed.
	Forgotten string `json:"forgotten,omitempty"`
}

// kept is how many states of a package are remembered: a developer goes to and fro between branches.
const kept = 8

// of returns what is known of a package as it is now.
func (t *tally) of(p pkg) entry {
	for _, e := range t.Packages[p.Path] {
		if e.Key == p.Key {
			return e
		}
	}
	return entry{Key: p.Key}
}

// set stores what is known of a package, and drops what was looked at longest ago.
func (t *tally) set(path string, e entry) {
	list := slices.DeleteFunc(t.Packages[path], func(old entry) bool { return old.Key == e.Key })
	list = append(list, e)
	slices.SortStableFunc(list, func(a, b entry) int { return b.Last.Compare(a.Last) })
	if t.Packages == nil {
		t.Packages = map[string][]entry{}
	}
	t.Packages[path] = list[:min(len(list), kept)]
}

// count notes a round, which was clean when there is no failure.
func (t *tally) count(p pkg, commit string, at time.Time, f *failure) {
	e := t.of(p)
	e.Commit, e.Last = commit, at
	if f == nil {
		e.Clean++
	} else {
		e.Clean = 0
		e.Failures = append(slices.Clone(e.Failures), *f)
	}
	t.set(p.Path, e)
}

// forget takes the failures of packages, as they are now, from the list.
func (t *tally) forget(packages []pkg, reason string) {
	for _, p := range packages {
		e := t.of(p)
		if len(e.Failures) == 0 {
			continue
		}
		e.Failures = slices.Clone(e.Failures)
		for i := range e.Failures {
			if e.Failures[i].Forgotten == "" {
				e.Failures[i].Forgotten = reason
			}
		}
		t.set(p.Path, e)
	}
}

// listed are the failures that nobody has forgotten.
func (e entry) listed() []failure {
	return slices.DeleteFunc(slices.Clone(e.Failures), func(f failure) bool { return f.Forgotten != "" })
}

// store is the directory of a tally.
type store struct{ dir string }

func (s store) path() string { return filepath.Join(s.dir, "tally.json") }

// logPath is where the output of a failed round is kept.
func (s store) logPath(p pkg, seed string) string {
	return filepath.Join(s.dir, "logs", fileName(p.Path)+"-"+seed+".log")
}

// read reads the tally; it is empty at first.
func (s store) read() (*tally, error) {
	raw, err := os.ReadFile(s.path())
	if errors.Is(err, fs.ErrNotExist) {
		return &tally{Version: tallyVersion}, nil
	}
	if err != nil {
		return nil, err
	}
	t := &tally{}
	if err := json.Unmarshal(raw, t); err != nil {
		return nil, fmt.Errorf("%s: %w; move it away to begin anew", s.path(), err)
	}
	if t.Version != tallyVersion {
		return nil, fmt.Errorf("%s has version %d, and this is %d: name another directory with -state", s.path(), t.Version, tallyVersion)
	}
	return t, nil
}

// change reads the tally, changes it, and writes it in one step, while no other command does.
func (s store) change(f func(*tally)) error {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(s.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close()
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	t, err := s.read()
	if err != nil {
		return err
	}
	f(t)
	raw, err := json.MarshalIndent(t, "", "\t")
	if err != nil {
		return err
	}
	return atomicfile.Write(s.path(), append(raw, '\n'), 0o644)
}
