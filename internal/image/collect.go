package image

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/image/faults"
	"monopod.dev/monopod/internal/image/imageref"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// transferLabel marks the lease of a pull or a load: it holds what the operation has brought so far. Its value says what
// is transferred; bootLabel says in which boot.
const (
	transferLabel = "monopod.dev/transfer"
	bootLabel     = "monopod.dev/boot"
)

// Remove removes the image that ref names (an id, a tag or a digest) with all its names, and frees what nobody else
// uses before it returns. It is idempotent: an image that is not there is no error. Layers that a pin holds stay.
func (s *Store) Remove(ctx context.Context, ref string) error {
	name, err := imageref.Parse(ref)
	if err != nil {
		return err
	}
	ctx = s.scope(ctx)
	e := s.index.entry(name)
	if e == nil {
		return s.removeBroken(ctx, name)
	}
	if err := s.changeNames(ctx, func(ctx context.Context) error {
		return s.deleteNames(ctx, s.index.names(e.image.ID))
	}); err != nil {
		return fmt.Errorf("removing image %s: %w", ref, err)
	}
	s.log.InfoContext(ctx, "image removed", "image", ref, "id", e.image.ID)
	if err := failpoint.Hit("image/remove/unnamed"); err != nil {
		return err
	}
	return s.collect(ctx)
}

// removeBroken removes a name that leads to an image which is not whole, and so is not listed.
func (s *Store) removeBroken(ctx context.Context, ref imageref.Ref) error {
	if ref.Name == nil {
		return nil
	}
	err := s.images.Delete(ctx, ref.Name.String())
	switch {
	case errdefs.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("removing image %s: %w", ref.Name, faults.NoRoom(err))
	}
	return s.collect(ctx)
}

// kickCollect asks for a garbage collection soon.
func (s *Store) kickCollect() {
	select {
	case s.collectKick <- struct{}{}:
	default: // one is asked for already
	}
}

// collectAsked collects if it was asked for and has not happened: at the end, so that a store that is closed holds nothing
// that nobody uses.
func (s *Store) collectAsked(ctx context.Context) {
	if s.layers.unused.Load() { // a full disk has kept them
		s.kickCollect()
	}
	select {
	case <-s.collectKick:
		if err := s.collect(ctx); err != nil {
			s.log.WarnContext(ctx, "collecting unused image content failed; it is tried again at the next start", "error", err)
		}
	default:
	}
}

// collectLoop collects when it is asked to, and from time to time for what a failed pull left.
func (s *Store) collectLoop(ctx context.Context) {
	tick := time.NewTicker(s.resumeWindow)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.collectKick:
		case <-tick.C:
		}
		if err := s.collect(ctx); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "collecting unused image content failed; it is tried again later", "error", err)
		}
	}
}

// collect removes what no name, pin or running transfer refers to. It is gone from the disk when it returns.
func (s *Store) collect(ctx context.Context) error {
	if err := s.letGo(ctx); err != nil {
		return err
	}
	if err := s.layers.removeUnused(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("removing layers that are not used: %w", faults.NoRoom(err))
	}
	return failpoint.Hit("image/collect/ended")
}

// letGo removes from the metadata, and with their blobs from the disk, what no name, pin or running transfer refers to.
func (s *Store) letGo(ctx context.Context) error {
	s.collectMu.Lock()
	defer s.collectMu.Unlock()
	if err := s.dropLate(ctx); err != nil {
		return err
	}
	if err := s.dropStaleTransfers(ctx); err != nil {
		return err
	}
	if err := s.loads.sweep(s.resumeWindow, time.Now()); err != nil {
		return fmt.Errorf("removing old downloads: %w", err)
	}
	if err := failpoint.Hit("image/collect/begun"); err != nil {
		return err
	}
	// Detached: it is short, and containerd's collector leaks a goroutine when it is cancelled.
	if _, err := s.db.GarbageCollect(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("collecting unused image content: %w", faults.NoRoom(err))
	}
	s.sums.changed()
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

func (s *Store) dropLate(ctx context.Context) (err error) {
	s.late.mu.Lock()
	keys, ids := s.late.snapshots, s.late.leases
	s.late.snapshots, s.late.leases = nil, nil
	s.late.mu.Unlock()
	for len(keys) > 0 && err == nil {
		if err = s.snaps.Remove(ctx, keys[0]); err == nil || errdefs.IsNotFound(err) {
			keys, err = keys[1:], nil
		}
	}
	for len(ids) > 0 && err == nil {
		if err = s.leases.Delete(ctx, leases.Lease{ID: ids[0]}); err == nil || errdefs.IsNotFound(err) {
			ids, err = ids[1:], nil
		}
	}
	if err != nil {
		s.late.add(keys, ids)
		return fmt.Errorf("giving back what an earlier transfer could not: %w", faults.NoRoom(err))
	}
	return nil
}

// dropStaleTransfers drops the leases of pulls and loads that ended without success long enough ago, or in an earlier
// boot: layers are written to disk only before they get a name, so those of a pull that a power loss ended may be torn.
func (s *Store) dropStaleTransfers(ctx context.Context) error {
	all, err := s.leases.List(ctx)
	if err != nil {
		return fmt.Errorf("reading the leases: %w", err)
	}
	for _, l := range all {
		if l.Labels[transferLabel] == "" || s.transferRuns(l.ID) {
			continue
		}
		if l.Labels[bootLabel] == s.boot && time.Since(l.CreatedAt) < s.resumeWindow {
			continue
		}
		if err := s.leases.Delete(ctx, l); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("dropping the lease of an old transfer: %w", faults.NoRoom(err))
		}
	}
	return nil
}

// beginTransfer makes a lease that holds all that is stored with the returned context. end must be called: with keep,
// what was stored stays for Config.ResumeWindow, so that another attempt finds it.
func (s *Store) beginTransfer(ctx context.Context, what string) (_ context.Context, lease leases.Lease, end func(keep bool), err error) {
	// Marked before it exists: a collection in between would take it for one of a transfer that has ended.
	id := "transfer/" + rand.Text()
	s.activeMu.Lock()
	s.active[id] = true
	s.activeMu.Unlock()
	lease, err = s.leases.Create(ctx,
		leases.WithID(id), leases.WithLabel(transferLabel, what), leases.WithLabel(bootLabel, s.boot))
	if err != nil {
		s.activeMu.Lock()
		delete(s.active, id)
		s.activeMu.Unlock()
		return nil, lease, nil, fmt.Errorf("lease for %s: %w", what, faults.NoRoom(err))
	}
	end = func(keep bool) {
		if !keep {
			// Detached: a lease that outlives a cancelled call would hold its content for an hour.
			if err := s.leases.Delete(context.WithoutCancel(ctx), lease); err != nil && !errdefs.IsNotFound(err) {
				s.log.WarnContext(ctx, "dropping a lease failed; what it holds is freed later", "lease", lease.ID, "error", err)
				s.late.add(nil, []string{lease.ID})
			}
		}
		s.activeMu.Lock()
		delete(s.active, lease.ID)
		s.activeMu.Unlock()
		s.kickCollect()
	}
	return leases.WithLease(ctx, lease.ID), lease, end, nil
}

func (s *Store) transferRuns(leaseID string) bool {
	s.activeMu.Lock()
	defer s.activeMu.Unlock()
	return s.active[leaseID]
}
