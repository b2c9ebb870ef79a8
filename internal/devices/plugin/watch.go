package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/fsnotify/fsnotify"

	"monopod.dev/monopod/internal/kit/wait"
)

const (
	// slowly is how often a folder is looked at although nothing was heard of it: a mount over it is no event.
	slowly = time.Minute
	// soon is how long to wait before a folder is looked at that does not serve, or cannot be watched.
	soon = time.Second
)

// sight is what looking at folders has shown.
type sight struct {
	watch []string      // folders whose changes are worth another look
	again time.Duration // when to look again without one; 0: slowly
}

// follow looks, and looks again after each change in the folders that the last look has named, until ctx ends. concerns picks the events; it
// may be nil. What stops changes from being seen is told.
func follow(ctx context.Context, concerns func(path string) bool, look func() sight, tell func(error)) {
	w, err := newWatcher()
	tell(err)
	if w != nil {
		defer w.fs.Close()
	}
	for {
		seen := look()
		if seen.again == 0 {
			seen.again = slowly
		}
		grown, err := w.aim(seen.watch)
		if w != nil {
			tell(err)
		}
		if w == nil || err != nil {
			seen.again = soon
		}
		if grown {
			continue // something may have come between the look and the watch
		}
		if !w.wait(ctx, seen.again, concerns) {
			return
		}
	}
}

type watcher struct {
	fs      *fsnotify.Watcher
	watched map[string]file
}

func newWatcher() (*watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("changes are seen only once a second: inotify: %w; look at the sysctl fs.inotify.max_user_instances", err)
	}
	return &watcher{fs: w, watched: map[string]file{}}, nil
}

// aim watches the folders; grown says that it did not watch one of them before.
func (w *watcher) aim(folders []string) (grown bool, err error) {
	if w == nil {
		return false, nil
	}
	want := map[string]bool{}
	var errs []error
	for _, path := range folders {
		want[path] = true
		now, _, err := fileAt(path)
		if old, ok := w.watched[path]; ok && err == nil && old == now {
			continue
		} else if ok {
			_ = w.fs.Remove(path) // a folder that is gone has lost its watch already
			delete(w.watched, path)
		}
		if err != nil {
			continue // gone again, which its parent tells of
		}
		if err := w.fs.Add(path); err == nil {
			w.watched[path] = now
			grown = true
		} else if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("changes are seen only once a second: %s is not watched: %w; look at the sysctl fs.inotify.max_user_watches", path, err))
		}
	}
	for path := range w.watched {
		if !want[path] {
			_ = w.fs.Remove(path)
			delete(w.watched, path)
		}
	}
	return grown, errors.Join(errs...)
}

// wait returns true when there is something to look at, false when ctx has ended.
func (w *watcher) wait(ctx context.Context, most time.Duration, concerns func(path string) bool) bool {
	if w == nil {
		return wait.For(ctx, most) == nil
	}
	t := time.NewTimer(most)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-t.C:
			return true
		case ev := <-w.fs.Events:
			if ev.Op == fsnotify.Chmod {
				continue
			}
			if _, own := w.watched[ev.Name]; own || concerns == nil || concerns(ev.Name) {
				return true
			}
		case <-w.fs.Errors:
			return true // events were lost
		}
	}
}
