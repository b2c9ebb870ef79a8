// Package garbage deletes objects whose owners are gone (metadata.ownerReferences).
//
//   - An object is deleted when none of its owners is there any more; it loses those that are not when another one is.
//   - An object that is deleted in the foreground (finalizer foregroundDeletion) goes when its dependents have which block its deletion.
//   - An object that is deleted as an orphanage (finalizer orphan) goes when its dependents have lost it as their owner.
//
// Owners are in the namespace of what they own, or in none. Who names an owner elsewhere is told so by an event, and its owner is none.
//
// All objects are watched that the API server can list and delete, but events: their metadata only, of which the graph keeps what it needs. Kinds that come
// and go are found by asking for them again: when a watch is cut, when an owner is of an unknown kind, and when definitions of kinds change.
//
// Nothing is deleted on the word of the graph: the API server is asked for the object and for its owners, by their UIDs, and deletes only the very version
// that was seen. Whoever starts anew, after a crash too, comes to the same decisions.
//
// Not collected: what is owned by objects that nobody can watch, when these go later; what is owned by a kind that the API server does not know.
package garbage

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/kit/queue"
)

const (
	// workers is how many objects are worked on at a time.
	workers = 4
	// patience is how long the work is put off for kinds that cannot be listed: what they own could go too early, or hold others.
	patience = 30 * time.Second
)

// Config is what a Collector needs.
type Config struct {
	// Metadata has the right to get, list, watch, patch and delete whatever the API server has.
	Metadata  metadata.Interface
	Discovery Discovery
	// Events is where it tells of owners that cannot be.
	Events record.EventRecorder
	Log    *slog.Logger
}

// Collector deletes what has lost its owners. See the package's documentation.
type Collector struct {
	config  Config
	objects objects
	graph   *graph
	queue   *queue.Queue[types.UID]
	// discovery is when the kinds are to be looked at, each item after that time.
	discovery *queue.Queue[time.Duration]

	watches sync.WaitGroup
	mu      sync.Mutex
	kinds   kinds
	watched map[*kind]*feed
	// parked are objects with owners of unknown kinds.
	parked map[schema.GroupVersionKind]map[types.UID]bool
	// discovered is closed when the kinds are known for the first time.
	discovered chan struct{}
}

// New returns a Collector that does nothing until it is run.
func New(config Config) *Collector {
	return &Collector{
		config: config, objects: objects{config.Metadata}, graph: newGraph(), queue: queue.New[types.UID](), discovery: queue.New[time.Duration](),
		watched: map[*kind]*feed{}, parked: map[schema.GroupVersionKind]map[types.UID]bool{}, discovered: make(chan struct{}),
	}
}

// Run collects until ctx ends, which is no error. A Collector is run once.
func (c *Collector) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	c.discovery.Add(0)
	parts.Go(func() {
		c.discovery.Run(ctx, 1, c.discover, func(_ time.Duration, err error) {
			c.config.Log.Warn("the kinds of the API server are not all known; what they own is not collected", "error", err)
		})
	})
	parts.Go(func() {
		c.awaitAll(ctx)
		c.queue.Run(ctx, workers, c.process, func(uid types.UID, err error) {
			if quiet(err) {
				return
			}
			v, _ := c.graph.view(uid)
			c.config.Log.Warn("garbage could not be collected, trying again", "namespace", v.namespace, "name", v.name, "uid", uid, "error", err)
		})
	})
	parts.Wait()
	c.watches.Wait()
	return nil
}

// awaitAll returns when the objects of all kinds are known: before that, an object that is to go after its dependents seems to have none.
func (c *Collector) awaitAll(ctx context.Context) {
	select {
	case <-c.discovered:
	case <-ctx.Done():
		return
	}
	c.mu.Lock()
	var feeds []*feed
	for _, f := range c.watched {
		feeds = append(feeds, f)
	}
	c.mu.Unlock()
	enough := time.NewTimer(patience)
	defer enough.Stop()
	for _, f := range feeds {
		select {
		case <-f.known:
		case <-enough.C:
			c.config.Log.Warn("garbage is collected though not all objects could be listed", "kind", f.kind.gvk.String())
			return
		case <-ctx.Done():
			return
		}
	}
}

// discover brings the watches up to what the API server has.
func (c *Collector) discover(ctx context.Context, _ time.Duration) error {
	before := c.knownKinds()
	now, err := discover(ctx, c.config.Discovery, before)
	if err != nil && len(now.watched) == 0 {
		return err
	}
	if now.same(before) {
		return err
	}
	c.mu.Lock()
	c.kinds = now
	current := map[*kind]bool{}
	for _, k := range now.watched {
		current[k] = true
		if c.watched[k] == nil {
			c.watched[k] = c.watch(ctx, k)
		}
	}
	var lost []*feed
	for k, f := range c.watched {
		if !current[k] {
			lost = append(lost, f)
			delete(c.watched, k)
		}
	}
	again := c.parked
	c.parked = map[schema.GroupVersionKind]map[types.UID]bool{}
	select {
	case <-c.discovered:
	default:
		close(c.discovered)
	}
	c.mu.Unlock()
	for _, f := range lost {
		f.stop()
		c.look(c.graph.lose(f.kind))
	}
	for _, all := range again {
		c.look(slices.Collect(maps.Keys(all)))
	}
	return err
}

func (c *Collector) knownKinds() kinds {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kinds
}

// kind returns the kind of that name; nil: there is none.
func (c *Collector) kind(gvk schema.GroupVersionKind) *kind { return c.knownKinds().all[gvk] }

// park puts an object off until the kinds change, and has them looked at if its owner's kind is the first of its name.
func (c *Collector) park(uid types.UID, gvk schema.GroupVersionKind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kinds.all[gvk] != nil { // since a moment ago
		c.queue.Add(uid)
		return
	}
	if c.parked[gvk] == nil {
		c.parked[gvk] = map[types.UID]bool{}
		c.discovery.Add(0)
	}
	c.parked[gvk][uid] = true
}

func (c *Collector) look(all []types.UID) {
	for _, uid := range all {
		c.queue.Add(uid)
	}
}
