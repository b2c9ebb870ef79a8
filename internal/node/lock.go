package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// part is what of a node one process runs. Each has a lock of its own in the run directory, because each has files of its own there and in the data
// directory: parts that were started apart work beside each other as one node, two of the same do not.
type part string

const (
	partAPIServer part = "apiserver"
	partRuntime   part = "runtime"
	partAgent     part = "agent"
)

// allParts are a whole node.
var allParts = []part{partAPIServer, partRuntime, partAgent}

func (p part) lockFile(runDir string) string { return filepath.Join(runDir, string(p)+".lock") }

// lock takes the locks of these parts, all or none. The kernel drops them with the process, so a kill -9 leaves none behind.
func lock(runDir string, parts ...part) (unlock func(), err error) {
	var held []*os.File
	unlock = func() {
		for _, f := range held {
			f.Close()
		}
	}
	for _, p := range parts {
		f, err := os.OpenFile(p.lockFile(runDir), os.O_RDWR|os.O_CREATE, 0o600)
		if err == nil {
			err = p.take(f, runDir)
		}
		if err == nil {
			// The pid is for people who find the lock taken.
			err = errors.Join(f.Truncate(0), writePID(f))
		}
		if err != nil {
			f.Close()
			unlock()
			return nil, err
		}
		held = append(held, f)
	}
	return unlock, nil
}

// lockIdle takes the locks of a whole node that does not run, and makes no file: a part without a lock was not used in this boot.
func lockIdle(runDir string) (unlock func(), err error) {
	var held []*os.File
	unlock = func() {
		for _, f := range held {
			f.Close()
		}
	}
	for _, p := range allParts {
		f, err := os.Open(p.lockFile(runDir))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = p.take(f, runDir)
		}
		if err != nil {
			f.Close()
			unlock()
			return nil, err
		}
		held = append(held, f)
	}
	return unlock, nil
}

// take locks a part's file, or says who has it.
func (p part) take(f *os.File, runDir string) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EWOULDBLOCK):
		holder, _ := os.ReadFile(f.Name())
		return &runsError{part: p, dir: runDir, pid: strings.TrimSpace(string(holder)), lock: f.Name()}
	}
	return fmt.Errorf("lock %s: %w", f.Name(), err)
}

// runsError says that a part of a node runs already.
type runsError struct {
	part           part
	dir, pid, lock string
}

// Error implements error.
func (e *runsError) Error() string {
	return fmt.Sprintf("another monopod (process %s) runs the role %s with the run directory %s: stop it, or choose another --run-dir and --data-dir (lock %s)",
		e.pid, e.part, e.dir, e.lock)
}

func writePID(f *os.File) error {
	_, err := fmt.Fprintf(f, "%d\n", os.Getpid())
	return err
}
