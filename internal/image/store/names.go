package store

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/core/metadata/boltutil"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/image/faults"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// names are the names of the images in the metadata, and the index that is made of them.
type names struct {
	db     *metadata.DB
	images images.Store
	index  *index

	// mu makes the changes, each with its index, one after another.
	mu sync.Mutex
}

// change changes names in one transaction, and makes the index anew before anybody else changes names: so it never
// remembers an image that was removed, and pulled again into other directories, meanwhile.
func (n *names) change(ctx context.Context, do func(ctx context.Context) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := failpoint.Around("image/names", func() error {
		return n.db.Update(func(tx *bolt.Tx) error { return do(boltutil.WithTransaction(ctx, tx)) })
	}); err != nil {
		return faults.NoRoom(err)
	}
	return n.index.rebuild(ctx)
}

// set gives an image a name, which another image may have, within a change.
func (n *names) set(ctx context.Context, name string, target ocispec.Descriptor) error {
	rec := images.Image{Name: name, Target: target}
	_, err := n.images.Update(ctx, rec, "target")
	if errdefs.IsNotFound(err) {
		_, err = n.images.Create(ctx, rec)
	}
	if err != nil {
		return fmt.Errorf("naming the image %s: %w", name, err)
	}
	return nil
}

// remove removes names within a change. Those that are not there are passed over.
func (n *names) remove(ctx context.Context, names ...string) error {
	for _, name := range names {
		if err := n.images.Delete(ctx, name); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("removing the name %s: %w", name, err)
		}
	}
	return nil
}

// Naming is one image, by its manifest or index, and the names that it is to have.
type Naming struct {
	Target ocispec.Descriptor
	Names  []string
}

// Publish gives images their names and ends what the transfer holds, in one transaction: from now on the names hold the content.
// The layers are written to disk before, all with one call: a name must not lead to a layer that a power loss tore.
// (Layers without a name yet may be torn: dropStaleTransfers drops them after a reboot.)
func (s *Store) Publish(ctx context.Context, t *Transfer, namings ...Naming) error {
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
