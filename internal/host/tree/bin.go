package tree

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// BinName is the name of a bin's directory, where it lies among what is thrown in. No pod and no container has it.
const BinName = ".removing"

// binPatience is when what could not be removed is tried again, unless something else is thrown in before.
const binPatience = 10 * time.Minute

// Bin holds what is to be removed, and removes it in the background. Nothing of it is remembered but that it lies in the bin's directory, so it
// goes on with it after a crash. After a power loss some may be where it was: whoever finds it there without an owner throws it in again.
type Bin struct {
	dir  string
	log  *slog.Logger
	wake chan struct{}
	told map[string]bool // what could not be removed, of which Run alone knows
}

// NewBin returns the bin in a directory, whose file system is that of what is thrown in. It makes nothing yet.
func NewBin(dir string, log *slog.Logger) *Bin {
	return &Bin{dir: dir, log: log, wake: make(chan struct{}, 1), told: map[string]bool{}}
}

// Throw takes a file or directory away from its place, at once, however large it is. Nothing there is no error. What cannot be moved, because the disk is
// full or the bin is on another one, is removed before Throw returns. What is mounted in it is not removed, and keeps its place in the bin.
func (b *Bin) Throw(ctx context.Context, path string) error {
	to := filepath.Join(b.dir, filepath.Base(path)+"-"+rand.Text()[:8])
	err := os.Rename(path, to)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err = os.MkdirAll(b.dir, 0o700); err == nil {
			err = os.Rename(path, to)
		}
	}
	switch {
	case err == nil:
		select {
		case b.wake <- struct{}{}:
		default:
		}
		return nil
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EXDEV):
		return Remove(ctx, path)
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%s is mounted, it is not removed: %w", path, err)
	}
	return err
}

// Run removes what is in the bin, and what comes into it, until ctx ends.
func (b *Bin) Run(ctx context.Context) error {
	for {
		var again <-chan time.Time
		if !b.empty(ctx) {
			again = time.After(binPatience)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-b.wake:
		case <-again:
		}
	}
}

// empty removes what is there, and says whether nothing is left of it.
func (b *Bin) empty(ctx context.Context) bool {
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			b.log.Warn("what is to be removed cannot be listed; it is tried again later", "directory", b.dir, "error", err)
		}
		return errors.Is(err, fs.ErrNotExist)
	}
	done := true
	for _, e := range entries {
		err := Remove(ctx, filepath.Join(b.dir, e.Name()))
		if ctx.Err() != nil {
			return false
		}
		if err == nil {
			delete(b.told, e.Name())
			continue
		}
		done = false
		if !b.told[e.Name()] {
			b.told[e.Name()] = true
			b.log.Warn("files that nobody uses any more were not removed; it is tried again later", "directory", filepath.Join(b.dir, e.Name()), "error", err)
		}
	}
	return done
}
