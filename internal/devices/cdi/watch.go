package cdi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// A change of files comes as several events (create, write, write, rename). They are taken together: after the first, the watcher waits
// until there was none for quiet, but no longer than patience. Device nodes come and go with fewer.
const (
	quietFiles = 30 * time.Millisecond
	quietNodes = 5 * time.Millisecond
	patience   = time.Second
)

// maxNodeDirs bounds the directories that are watched for device nodes. Two thousand devices lie in a handful of them.
const maxNodeDirs = 256

// inode tells a directory from its successor of the same name.
type inode struct{ dev, ino uint64 }

// scope is what an event is about.
type scope uint8

const (
	ofFolders scope = 1 << iota // the folders of specs
	ofNodes                     // paths that have to be there
)

// watcher reports changes in folders, and of a set of paths, whether they exist or not: it watches each directory from the root to each
// of them, so that the making, the removal or the renaming of any is seen. The number of watches is that of the directories.
type watcher struct {
	notify   *notifier
	folders  map[string]bool  // whose files count
	relevant map[string]scope // folders, paths, and all that is on the way to them
	watched  map[string]inode
}

func newWatcher() (*watcher, error) {
	n, err := newNotifier()
	if err != nil {
		return nil, err
	}
	return &watcher{notify: n, watched: map[string]inode{}}, nil
}

func (w *watcher) close() { w.notify.close() }

// aim sets what is watched, and takes up directories that have come, gone or been replaced since the last call. Whoever looks after
// it misses no change; grown says that there are directories of which a change may have been missed until now. The error
// names each directory that cannot be watched.
func (w *watcher) aim(folders, paths []string) (grown bool, err error) {
	var errs []error
	w.folders, w.relevant = map[string]bool{}, map[string]scope{}
	dirs := map[string]bool{}
	for _, folder := range folders {
		w.folders[filepath.Clean(folder)] = true
		w.mark(filepath.Clean(folder), ofFolders, dirs)
	}
	maps.Copy(dirs, w.folders)
	unwatched, left := maxNodeDirs, 0
	for _, path := range paths {
		if dir := filepath.Dir(filepath.Clean(path)); !dirs[dir] {
			if unwatched == 0 {
				left++
				continue
			}
			unwatched--
		}
		w.mark(filepath.Clean(path), ofNodes, dirs)
	}
	if left > 0 {
		errs = append(errs, fmt.Errorf("%d device nodes are not watched: they are in more than %d directories", left, maxNodeDirs))
	}
	for path, old := range w.watched {
		if now, ok := directory(path); !dirs[path] || !ok || now != old || !w.notify.has(path) {
			w.notify.remove(path)
			delete(w.watched, path)
		}
	}
	grown, err = w.watch(dirs)
	return grown, errors.Join(append(errs, err)...)
}

// mark notes a path and all that is on the way to it, and the directories where its coming and going is seen.
func (w *watcher) mark(path string, s scope, dirs map[string]bool) {
	for ; w.relevant[path]&s == 0; path = filepath.Dir(path) {
		w.relevant[path] |= s
		dirs[filepath.Dir(path)] = true
	}
}

// watch takes up those directories that exist and are not yet watched.
func (w *watcher) watch(dirs map[string]bool) (grown bool, err error) {
	var errs []error
	for changed := true; changed; { // a directory may be made while its parent is not yet watched
		changed = false
		for _, path := range slices.Sorted(maps.Keys(dirs)) {
			if _, ok := w.watched[path]; ok {
				continue
			}
			node, ok := directory(path)
			if !ok {
				continue
			}
			mask := uint32(comesAndGoes)
			if w.folders[path] {
				mask = allChanges
			}
			if err := w.notify.add(path, mask); err != nil {
				delete(dirs, path)
				if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
					errs = append(errs, fmt.Errorf("%s is not watched: %w; look at the sysctl fs.inotify.max_user_watches", path, err))
				}
				continue
			}
			w.watched[path] = node
			changed, grown = true, true
		}
	}
	return grown, errors.Join(errs...)
}

func directory(path string) (inode, bool) {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return inode{}, false
	}
	return inode{st.Dev, st.Ino}, true
}

// concerns says what an event at a path is about; nothing, when it is neither in a folder nor at or on the way to a path.
func (w *watcher) concerns(path string) scope {
	if path == "" {
		return ofFolders | ofNodes // events were lost, so anything may have changed
	}
	s := w.relevant[path]
	if w.folders[filepath.Dir(path)] {
		s |= ofFolders
	}
	return s
}

// wait returns when something has changed and then been quiet, with what that was about; when wake has a value; or with ctx's error.
func (w *watcher) wait(ctx context.Context, wake <-chan struct{}) (scope, error) {
	settled := time.NewTimer(0) // armed by the first event
	<-settled.C
	defer settled.Stop()
	var about scope
	var deadline time.Time
	for {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-wake:
			return about | ofNodes, nil
		case <-settled.C:
			return about, nil
		case path := <-w.notify.changed:
			s := w.concerns(path)
			if s == 0 {
				continue
			}
			about |= s
		}
		now := time.Now()
		if deadline.IsZero() {
			deadline = now.Add(patience)
		}
		quiet := quietNodes
		if about&ofFolders != 0 {
			quiet = quietFiles
		}
		settled.Reset(min(quiet, deadline.Sub(now)))
	}
}
