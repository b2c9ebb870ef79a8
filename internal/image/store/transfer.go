package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/image/faults"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
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

// Hold makes the transfer hold an image.
func (t *Transfer) Hold(ctx context.Context, imageID ids.ImageID) error {
	return t.store.leases.AddResource(ctx, t.lease, leases.Resource{ID: string(imageID), Type: "content"})
}

// GiveBackLater is told of a snapshot that could not be removed: the next collection tries it again.
func (s *Store) GiveBackLater(snapshot string) { s.garbage.late.add([]string{snapshot}, nil) }

// Naming is one image, by its manifest or index, and the names that it is to have.
type Naming struct {
	Target ocispec.Descriptor
	Names  []string
}

// Publish gives images their names and drops what the transfer holds, in one transaction: from now on the names hold the content.
// The layers are written to disk before, all with one call: a name must not lead to a layer that a power loss tore.
// (Layers without a name yet may be torn: dropStaleTransfers drops them after a reboot.)
func (t *Transfer) Publish(ctx context.Context, namings ...Naming) error {
	s := t.store
	if err := syncFS(s.root); err != nil {
		return err
	}
	if err := failpoint.Hit("image/publish/synced"); err != nil {
		return err
	}
	err := s.names.change(ctx, func(ctx context.Context) error {
		for _, n := range namings {
			for _, name := range n.Names {
				if err := s.names.set(ctx, name, n.Target); err != nil {
					return err
				}
			}
		}
		return s.leases.Delete(ctx, t.lease)
	})
	if err != nil {
		return err
	}
	return failpoint.Hit("image/published")
}

// syncFS writes the whole file system of the directory to disk.
func syncFS(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("writing the file system of %s to disk: %w", dir, err)
	}
	return nil
}
