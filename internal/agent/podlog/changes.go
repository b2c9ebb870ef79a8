package podlog

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// Changes tells those who follow logs of changes. All of them share one inotify instance, which is there while somebody follows: a user of the host has 128 of
// them by default (fs.inotify.max_user_instances), and root's are not this process's alone. The zero value is ready. Its methods are safe for concurrent use.
type Changes struct {
	mu      sync.Mutex
	watcher *fsnotify.Watcher // nil: nobody follows
	// followers are those of a file, by its path, and folders how many there are in a folder.
	followers map[string]map[*listener]bool
	folders   map[string]int
}

// listener is one who follows a file. Changes that are not looked at yet are one.
type listener struct {
	path    string
	changed chan struct{}
	// failed is closed when nothing is told any more, for a reason.
	failed chan struct{}
	err    error
}

// follow begins to watch the file's folder: a watch of the file itself would go away with it at a rotation.
func (c *Changes) follow(path string) (*listener, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watcher == nil {
		w, err := fsnotify.NewWatcher()
		if err != nil {
			return nil, fmt.Errorf("follow %s: %w; if that is a limit, raise fs.inotify.max_user_instances", path, err)
		}
		c.watcher, c.followers, c.folders = w, map[string]map[*listener]bool{}, map[string]int{}
		go c.tell(w)
	}
	dir := filepath.Dir(path)
	if err := c.watcher.Add(dir); err != nil { // also where it is watched: it may be another folder by now
		c.end()
		return nil, fmt.Errorf("follow %s: %w; if that is a limit, raise fs.inotify.max_user_watches", path, err)
	}
	f := &listener{path: path, changed: make(chan struct{}, 1), failed: make(chan struct{})}
	if c.followers[path] == nil {
		c.followers[path] = map[*listener]bool{}
	}
	c.followers[path][f] = true
	c.folders[dir]++
	return f, nil
}

// leave ends what follow began.
func (c *Changes) leave(f *listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.followers[f.path][f] {
		return // all were left when the watch failed
	}
	delete(c.followers[f.path], f)
	if len(c.followers[f.path]) == 0 {
		delete(c.followers, f.path)
	}
	dir := filepath.Dir(f.path)
	if c.folders[dir]--; c.folders[dir] == 0 {
		delete(c.folders, dir)
		_ = c.watcher.Remove(dir) // it may have gone with its folder
	}
	c.end()
}

// end closes the inotify instance when nobody follows any more.
func (c *Changes) end() {
	if len(c.folders) == 0 && c.watcher != nil {
		c.watcher.Close()
		c.watcher = nil
	}
}

// tell passes on what a watcher tells, until it is closed. It waits for nobody.
func (c *Changes) tell(w *fsnotify.Watcher) {
	for {
		select {
		case e, ok := <-w.Events:
			if !ok {
				return
			}
			c.changed(w, e.Name)
		case err, ok := <-w.Errors:
			switch {
			case !ok:
				return
			case errors.Is(err, fsnotify.ErrEventOverflow): // something has changed
				c.changed(w, "")
			default:
				c.fail(w, err)
			}
		}
	}
}

// changed wakes those who follow a file, or all.
func (c *Changes) changed(w *fsnotify.Watcher, path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watcher != w {
		return
	}
	wake := func(all map[*listener]bool) {
		for f := range all {
			select {
			case f.changed <- struct{}{}:
			default:
			}
		}
	}
	if path != "" {
		wake(c.followers[path])
		return
	}
	for _, all := range c.followers {
		wake(all)
	}
}

// fail ends everybody's following. Who follows from then on has another watcher.
func (c *Changes) fail(w *fsnotify.Watcher, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watcher != w {
		return
	}
	for _, all := range c.followers {
		for f := range all {
			f.err = err
			close(f.failed)
		}
	}
	clear(c.followers)
	clear(c.folders)
	c.end()
}

// wait returns nil after a change of the file, or when the container has ended.
func (f *listener) wait(ctx context.Context, ended <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-ended:
		return nil
	case <-f.changed:
		return nil
	case <-f.failed:
		return fmt.Errorf("follow %s: %w", f.path, f.err)
	}
}
