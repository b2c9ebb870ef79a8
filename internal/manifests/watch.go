package manifests

import (
	"context"
	"fmt"
	"time"

	"github.com/fsnotify/fsnotify"
)

// quiet is for how long nothing may change before a directory is read: who writes a file does so in several steps.
const quiet = 100 * time.Millisecond

// watch tells of changes in a directory.
type watch struct {
	dir     string
	watcher *fsnotify.Watcher
	// changed gets a value when something has changed, and then nothing more for a moment.
	changed chan struct{}
	ended   chan struct{}
}

// newWatch begins to watch what add is called for, until ctx ends.
func newWatch(ctx context.Context, dir string) (*watch, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("changes in %s cannot be seen: %w", dir, err)
	}
	w := &watch{dir: dir, watcher: watcher, changed: make(chan struct{}, 1), ended: make(chan struct{})}
	go w.run(ctx)
	return w, nil
}

// add watches the directory, if that is not so already: one that went, and came again, is another one.
func (w *watch) add() error {
	if err := w.watcher.Add(w.dir); err != nil {
		return fmt.Errorf("changes in %s are not seen: %w", w.dir, err)
	}
	return nil
}

// run passes changes on.
func (w *watch) run(ctx context.Context) {
	defer close(w.ended)
	defer w.watcher.Close()
	var over <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.watcher.Events:
			over = time.After(quiet)
		case <-w.watcher.Errors: // events were lost
			over = time.After(quiet)
		case <-over:
			over = nil
			select {
			case w.changed <- struct{}{}:
			default:
			}
		}
	}
}
