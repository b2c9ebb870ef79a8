package cni

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// watch reads the configuration again when its directory changes, so that the log tells of it and the plugins have been asked
// for their STATUS when somebody wants to know. Setup and Status read it for themselves, so that a host that has no watch left
// is no reason not to start.
func (n *Network) watch() {
	if n.cfg.ConfDir == "" {
		return
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		n.log.Warn("the CNI configuration cannot be watched; it is read for each sandbox all the same", "folder", n.cfg.ConfDir, "error", err)
		return
	}
	n.arm(w)
	n.background.Go(func() {
		defer w.Close()
		for {
			select {
			case <-n.ctx.Done():
				return
			case <-w.Events:
			case err := <-w.Errors: // events were lost, perhaps
				n.log.Warn("watching the CNI configuration", "error", err)
			}
			n.arm(w) // the directory may have come, or gone
			_ = n.Status(n.ctx)
		}
	})
}

// arm watches the directory, or the nearest one above it that is there, so that its coming is seen.
func (n *Network) arm(w *fsnotify.Watcher) {
	for dir, below := filepath.Clean(n.cfg.ConfDir), ""; ; {
		err := w.Add(dir) // what is watched already stays so
		switch {
		case err == nil && below != "" && exists(below): // it has come meanwhile
			dir, below = below, ""
		case err == nil || dir == filepath.Dir(dir):
			return
		case errors.Is(err, fs.ErrNotExist):
			dir, below = filepath.Dir(dir), dir
		default:
			n.log.Warn("the CNI configuration cannot be watched; it is read for each sandbox all the same", "folder", dir, "error", err)
			return
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
