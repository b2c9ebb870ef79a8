package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/image/faults"
)

// transferLabel marks the lease of a pull or a load: it holds what the operation has brought so far. Its value says what
// is transferred; bootLabel says in which boot.
const (
	transferLabel = "monopod.dev/transfer"
	bootLabel     = "monopod.dev/boot"
)

// Transfer is a pull, a load or a save under way: it holds what was stored with its context.
type Transfer struct {
	store *Store
	lease leases.Lease
}

// Begin begins a transfer; what says of what. It holds all that is stored with the returned context, until End or Publish.
// End must be called.
func (s *Store) Begin(ctx context.Context, what string) (context.Context, *Transfer, error) {
	// Marked before it exists: a collection in between would take it for one of a transfer that has ended.
	id := "transfer/" + rand.Text()
	s.garbage.running.add(id)
	lease, err := s.leases.Create(ctx,
		leases.WithID(id), leases.WithLabel(transferLabel, what), leases.WithLabel(bootLabel, s.garbage.boot))
	if err != nil {
		s.garbage.running.remove(id)
		return nil, nil, fmt.Errorf("lease for %s: %w", what, faults.NoRoom(err))
	}
	return leases.WithLease(ctx, lease.ID), &Transfer{store: s, lease: lease}, nil
}

// End ends the transfer. With keep, what was stored stays for Config.ResumeWindow, so that another attempt finds it. ctx may
// have ended.
func (t *Transfer) End(ctx context.Context, keep bool) {
	g := &t.store.garbage
	if !keep {
		// Detached: a lease that outlives a cancelled call would hold its content for an hour.
		if err := t.store.leases.Delete(context.WithoutCancel(ctx), t.lease); err != nil && !errdefs.IsNotFound(err) {
			g.log.WarnContext(ctx, "dropping a lease failed; what it holds is freed later", "lease", t.lease.ID, "error", err)
			g.late.add(nil, []string{t.lease.ID})
		}
	}
	g.running.remove(t.lease.ID)
	g.kick()
}

// Hold makes the transfer hold an image, by its id.
func (t *Transfer) Hold(ctx context.Context, imageID string) error {
	return t.store.leases.AddResource(ctx, t.lease, leases.Resource{ID: imageID, Type: "content"})
}

// GiveBackLater is told of a snapshot that could not be removed: the next collection tries it again.
func (s *Store) GiveBackLater(snapshot string) { s.garbage.late.add([]string{snapshot}, nil) }

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
