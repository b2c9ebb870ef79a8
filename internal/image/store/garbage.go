package store

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/image/faults"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// garbage removes from the disk what no name, pin or running transfer refers to.
type garbage struct {
	log          *slog.Logger
	root         string // of the store
	db           *metadata.DB
	leases       leases.Manager
	content      content.Store
	snaps        snapshots.Snapshotter
	layers       *faultySnapshots // below snaps
	downloads    *Downloads
	boot         string
	resumeWindow time.Duration
	// collected is called when something may be gone.
	collected func()

	running running
	late    late

	mu    sync.Mutex // makes one collection run at a time
	asked chan struct{}
}

// kick asks for a collection soon.
func (g *garbage) kick() {
	select {
	case g.asked <- struct{}{}:
	default: // one is asked for already
	}
}

// last collects if it was asked for and has not happened: at the end, so that a store that is closed holds nothing
// that nobody uses.
func (g *garbage) last(ctx context.Context) {
	if g.layers.unused.Load() { // a full disk has kept them
		g.kick()
	}
	select {
	case <-g.asked:
		if err := g.collect(ctx); err != nil {
			g.log.WarnContext(ctx, "collecting unused image content failed; it is tried again at the next start", "error", err)
		}
	default:
	}
}

// loop collects when it is asked to, and from time to time for what a failed pull left.
func (g *garbage) loop(ctx context.Context) {
	tick := time.NewTicker(g.resumeWindow)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.asked:
		case <-tick.C:
		}
		if err := g.collect(ctx); err != nil && ctx.Err() == nil {
			g.log.WarnContext(ctx, "collecting unused image content failed; it is tried again later", "error", err)
		}
	}
}

// collect removes what no name, pin or running transfer refers to. It is gone from the disk when it returns.
func (g *garbage) collect(ctx context.Context) error {
	if err := g.letGo(ctx); err != nil {
		return err
	}
	if err := g.layers.removeUnused(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("removing layers that are not used: %w", faults.NoRoom(err))
	}
	return failpoint.Hit("image/collect/ended")
}

// letGo removes from the metadata, and with their blobs from the disk, what no name, pin or running transfer refers to.
func (g *garbage) letGo(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.dropLate(ctx); err != nil {
		return err
	}
	if err := g.dropStaleTransfers(ctx); err != nil {
		return err
	}
	if err := g.downloads.sweep(g.resumeWindow, time.Now()); err != nil {
		return fmt.Errorf("removing old downloads: %w", err)
	}
	if err := failpoint.Hit("image/collect/begun"); err != nil {
		return err
	}
	// Detached: it is short, and containerd's collector leaks a goroutine when it is cancelled.
	if _, err := g.db.GarbageCollect(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("collecting unused image content: %w", faults.NoRoom(err))
	}
	g.collected()
	return nil
}

// late is what could not be given back when it was time to, which takes room on the disk: each collection tries it again.
type late struct {
	mu                sync.Mutex
	snapshots, leases []string
}

func (l *late) add(snapshots, leases []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.snapshots, l.leases = append(l.snapshots, snapshots...), append(l.leases, leases...)
}

func (l *late) take() (snapshots, leases []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	snapshots, leases = l.snapshots, l.leases
	l.snapshots, l.leases = nil, nil
	return snapshots, leases
}

func (g *garbage) dropLate(ctx context.Context) (err error) {
	keys, ids := g.late.take()
	for len(keys) > 0 && err == nil {
		if err = g.snaps.Remove(ctx, keys[0]); err == nil || errdefs.IsNotFound(err) {
			keys, err = keys[1:], nil
		}
	}
	for len(ids) > 0 && err == nil {
		if err = g.leases.Delete(ctx, leases.Lease{ID: ids[0]}); err == nil || errdefs.IsNotFound(err) {
			ids, err = ids[1:], nil
		}
	}
	if err != nil {
		g.late.add(keys, ids)
		return fmt.Errorf("giving back what an earlier transfer could not: %w", faults.NoRoom(err))
	}
	return nil
}

// dropStaleTransfers drops the leases of pulls and loads that ended without success long enough ago, or in an earlier
// boot: layers are written to disk only before they get a name, so those of a pull that a power loss ended may be torn.
func (g *garbage) dropStaleTransfers(ctx context.Context) error {
	all, err := g.leases.List(ctx)
	if err != nil {
		return fmt.Errorf("reading the leases: %w", err)
	}
	for _, l := range all {
		if l.Labels[transferLabel] == "" || g.running.has(l.ID) {
			continue
		}
		if l.Labels[bootLabel] == g.boot && time.Since(l.CreatedAt) < g.resumeWindow {
			continue
		}
		if err := g.leases.Delete(ctx, l); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("dropping the lease of an old transfer: %w", faults.NoRoom(err))
		}
	}
	return nil
}

// running are the leases of transfers that are under way in this process. The zero value is ready to use.
type running struct {
	mu  sync.Mutex
	ids map[string]bool
}

func (r *running) add(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ids == nil {
		r.ids = map[string]bool{}
	}
	r.ids[id] = true
}

func (r *running) remove(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.ids, id)
}

func (r *running) has(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ids[id]
}
