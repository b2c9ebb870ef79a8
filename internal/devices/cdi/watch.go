package cdi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// A change of files comes as several events (create, write, write, rename). They are taken together: after the first,
// the watcher waits until there was none for quiet, but no longer than patience.
const (
	quiet    = 30 * time.Millisecond
	patience = time.Second
)

// inode tells a directory from its successor of the same name.
type inode struct{ dev, ino uint64 }

// watcher reports changes at, in, and on the way to a set of paths, whether they exist or not: it watches every directory
// from the root to each path, so that the making, the removal or the renaming of any of them is seen.
type watcher struct {
	fs      *fsnotify.Watcher
	targets []string
	watched map[string]inode
}

func newWatcher() (*watcher, error) {
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("inotify: %w; look at the sysctl fs.inotify.max_user_instances", err)
	}
	return &watcher{fs: fs, watched: map[string]inode{}}, nil
}

func (w *watcher) close() { w.fs.Close() }

// aim sets what is watched, and takes up directories that have come, gone or been replaced since the last call. Whoever
// reads the targets after it misses no change. The error names each directory that cannot be watched.
func (w *watcher) aim(targets []string) error {
	w.targets = targets
	want := map[string]bool{}
	for _, t := range targets {
		for p := filepath.Clean(t); ; p = filepath.Dir(p) {
			want[p] = true
			if p == filepath.Dir(p) {
				break
			}
		}
	}
	for path, old := range w.watched {
		if now, ok := directory(path); !want[path] || !ok || now != old {
			_ = w.fs.Remove(path) // gone directories have lost their watch already
			delete(w.watched, path)
		}
	}
	var errs []error
	for changed := true; changed; { // a directory may be made while its parent is not yet watched
		changed = false
		for path := range want {
			if _, ok := w.watched[path]; ok {
				continue
			}
			node, ok := directory(path)
			if !ok {
				continue
			}
			if err := w.fs.Add(path); err != nil {
				delete(want, path)
				if !errors.Is(err, os.ErrNotExist) {
					errs = append(errs, fmt.Errorf("%s is not watched: %w; look at the sysctl fs.inotify.max_user_watches", path, err))
				}
				continue
			}
			w.watched[path] = node
			changed = true
		}
	}
	return errors.Join(errs...)
}

func directory(path string) (inode, bool) {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return inode{}, false
	}
	return inode{st.Dev, st.Ino}, true
}

// concerns says whether an event at a path may change what is at or under a target.
func (w *watcher) concerns(path string) bool {
	for _, t := range w.targets {
		if path == t || within(path, t) || within(t, path) {
			return true
		}
	}
	return false
}

func within(path, dir string) bool {
	return strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// wait returns when something has changed and then been quiet, when wake has a value, or with ctx's error.
func (w *watcher) wait(ctx context.Context, wake <-chan struct{}) error {
	settled := time.NewTimer(0) // armed by the first event
	<-settled.C
	defer settled.Stop()
	var deadline time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wake:
			return nil
		case <-settled.C:
			return nil
		case ev := <-w.fs.Events:
			if ev.Op == fsnotify.Chmod || !w.concerns(ev.Name) {
				continue
			}
		case <-w.fs.Errors:
			// Events were lost (the kernel's queue overflowed), so anything may have changed.
		}
		now := time.Now()
		if deadline.IsZero() {
			deadline = now.Add(patience)
		}
		settled.Reset(min(quiet, deadline.Sub(now)))
	}
}
