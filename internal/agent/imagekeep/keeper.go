// Package imagekeep knows when each image of the node was used, and has the runtime remove those that nobody needs when their file
// system fills. What goes is decided by package imagegc.
//
// It guarantees that no image is removed that a container has, or that a pod has begun to use (Hold). While there is room a look
// costs one ImageFsInfo; images are only listed when what they take has changed.
//
// When an image was first seen and used last is kept in a file, written at most once a period and at the agent's end: it survives a
// restart of the agent and a reboot. After a kill -9 it is as old as the last period; without the file all images count as first
// seen now. In-use images need no memory: their containers are asked for.
package imagekeep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/imagegc"
	"monopod.dev/monopod/internal/kit/ids"
)

// Config configures a Keeper.
type Config struct {
	Runtime *cri.Client
	Policy  imagegc.Policy
	// Period is how often the file system is looked at.
	Period time.Duration
	// File is where the times are kept.
	File string
	// Node is what events are about.
	Node   *v1.ObjectReference
	Events record.EventRecorder
	Log    *slog.Logger
}

// Keeper is safe for concurrent use.
type Keeper struct {
	cfg Config

	mu sync.Mutex // guards what follows
	// times are by image id, and by name where only that is known.
	times map[string]*times
	// changed: the file is out of date.
	changed bool
	// held counts the users to be of ids and names; removing has those of images that are being removed, closed when that is over.
	held     map[string]int
	removing map[string]chan struct{}

	// of Run's goroutine only
	taken  uint64 // what the images took when they were listed last
	listed bool
	// failed: the last look failed.
	failed bool
}

// times are those of one image.
type times struct {
	FirstSeen time.Time `json:"firstSeen"`
	// LastUsed is zero when the image was never used.
	LastUsed time.Time `json:"lastUsed,omitzero"`
}

// New reads the file. A file that can't be read is said so and begun anew: what it holds is only an order of preference.
func New(cfg Config) *Keeper {
	k := &Keeper{cfg: cfg, held: map[string]int{}, removing: map[string]chan struct{}{}}
	var err error
	if k.times, err = load(cfg.File); err != nil {
		cfg.Log.Warn("when images were used is not known; they count as new", "file", cfg.File, "error", err)
		k.times = map[string]*times{}
	}
	return k
}

// Hold is an image in the hands of a pod that is about to use it. It is not removed until Release.
type Hold struct {
	k    *Keeper
	keys []string
}

// Hold keeps the image of a name from now on. It waits for a removal of it that is under way.
func (k *Keeper) Hold(ctx context.Context, name string) (*Hold, error) {
	h := &Hold{k: k}
	for {
		wait := h.take(canonical(name))
		if wait == nil {
			return h, nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// take adds a key to the hold; else it returns what has to be waited for.
func (h *Hold) take(key string) <-chan struct{} {
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	if c := h.k.removing[key]; c != nil {
		return c
	}
	h.k.held[key]++
	h.keys = append(h.keys, key)
	return nil
}

// Is tells which image the name leads to, and that it is used now. False: the image was being removed, under another name, and
// has to be looked up again; or ctx has ended.
func (h *Hold) Is(ctx context.Context, id ids.ImageID) bool {
	if wait := h.take(string(id)); wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
		}
		return false
	}
	h.k.Used(string(id))
	return true
}

// Release ends the hold; by then the container is there, or there will be none. A second call does nothing.
func (h *Hold) Release() {
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	for _, key := range h.keys {
		if h.k.held[key]--; h.k.held[key] == 0 {
			delete(h.k.held, key)
		}
	}
	h.keys = nil
}

// Used notes that an image is, or until now was, in use. ref is its id, or a name of it that the runtime knows.
func (k *Keeper) Used(ref string) {
	if ref == "" {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	t := k.times[ref]
	if t == nil {
		t = &times{FirstSeen: now}
		k.times[ref] = t
	}
	t.LastUsed = now
	k.changed = true
}

// canonical is a name as runtimes list it: with registry and tag. What is no name (an id) stays as it is.
func canonical(name string) string {
	ref, err := reference.ParseDockerRef(name)
	if err != nil {
		return name
	}
	return ref.String()
}

// Run looks once a period until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	defer k.save()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		k.tell(ctx, k.look(ctx))
		k.save()
		timer.Reset(k.cfg.Period)
	}
}

// Reasons of events, as kubelets write them.
const (
	reasonFreeDiskSpaceFailed = "FreeDiskSpaceFailed"
	reasonImageGCFailed       = "ImageGCFailed"
	reasonInvalidDiskCapacity = "InvalidDiskCapacity"
)

// tooFew says that there are not enough images that may go.
type tooFew struct{ wanted, found uint64 }

// The words are a kubelet's, which people and their alerts know.
func (e *tooFew) Error() string {
	return fmt.Sprintf("Failed to garbage collect required amount of images. Attempted to free %d bytes, but only found %d bytes eligible to free.", e.wanted, e.found)
}

var errNoCapacity = errors.New("invalid capacity 0 on image filesystem")

// tell makes events of a failure: of its cause each time, of the failure as such when it is not the first one in a row, since a
// runtime may be restarted between two looks.
func (k *Keeper) tell(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	again := k.failed
	k.failed = err != nil
	if err == nil {
		return
	}
	k.cfg.Log.Warn("images could not be removed to make room; it is tried again", "error", err, "in", k.cfg.Period)
	var few *tooFew
	switch {
	case errors.As(err, &few):
		k.cfg.Events.Event(k.cfg.Node, v1.EventTypeWarning, reasonFreeDiskSpaceFailed, few.Error())
	case errors.Is(err, errNoCapacity):
		k.cfg.Events.Event(k.cfg.Node, v1.EventTypeWarning, reasonInvalidDiskCapacity, err.Error())
	}
	if again {
		k.cfg.Events.Event(k.cfg.Node, v1.EventTypeWarning, reasonImageGCFailed, err.Error())
	}
}
