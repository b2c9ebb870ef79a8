package hostnames

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"monopod.dev/monopod/internal/kit/wait"
)

// Between two repairs there is a pause, which grows while they come one after another: against another program that writes the file in a loop.
const (
	leastPause = time.Second
	mostPause  = time.Minute
)

// Keep does what is wished for, and does it again when others undo it, or the wish changes, until ctx ends, which is no error. again has it look
// at once: the interface was made anew. Nothing is done while no file changes. A host that has no watch left does it at a start only.
func (h *Host) Keep(ctx context.Context, again <-chan struct{}) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		h.cfg.Log.WarnContext(ctx, "what other programs do to it is not seen", "file", h.cfg.ResolvConf, "error", err)
		w = &fsnotify.Watcher{}
	} else {
		defer w.Close()
		h.watch(ctx, w, h.cfg.Dir)
	}
	pauses := wait.Pauses{Least: leastPause, Most: mostPause}
	for look := true; ; {
		if look {
			changed, err := h.keep(ctx, w)
			if err != nil && ctx.Err() == nil {
				h.cfg.Log.WarnContext(ctx, "names of the cluster may not resolve on this machine", "error", err)
			}
			if changed || err != nil {
				if pauses.For(ctx) != nil {
					return nil
				}
				look = err != nil || len(w.Events) > 0
				continue
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case e := <-w.Events:
			look = h.concerns(e.Name)
		case <-w.Errors: // events were lost, perhaps
			look = true
		case <-again:
			look = true
		}
	}
}

// concerns says whether a file that has changed is one of those that matter.
func (h *Host) concerns(name string) bool {
	if name == h.file() || name == filepath.Clean(h.cfg.ResolvConf) {
		return true
	}
	real, err := filepath.EvalSymlinks(h.cfg.ResolvConf)
	return err == nil && name == real
}

// keep does once what is wished for.
func (h *Host) keep(ctx context.Context, w *fsnotify.Watcher) (changed bool, err error) {
	unlock, err := h.lock()
	if err != nil {
		return false, err
	}
	defer unlock()
	now, err := h.read()
	if err != nil || now == nil || !now.Enabled {
		return false, err
	}
	if now.How == ByFile {
		// Both folders: that of the link, and that of the file which it leads to.
		for _, path := range []string{h.cfg.ResolvConf, realOf(h.cfg.ResolvConf)} {
			h.watch(ctx, w, filepath.Dir(path))
		}
	}
	s, err := h.do(ctx, now)
	if err == nil && s.Changed {
		h.cfg.Log.InfoContext(ctx, "names of the cluster resolve on this machine", "by", s.How, "at", s.Place)
	}
	return s.Changed, err
}

// watch watches a folder, if it can.
func (h *Host) watch(ctx context.Context, w *fsnotify.Watcher, dir string) {
	if w.Events == nil {
		return
	}
	if err := w.Add(dir); err != nil {
		h.cfg.Log.WarnContext(ctx, "what other programs do there is not seen", "folder", dir, "error", err)
	}
}

func realOf(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}
