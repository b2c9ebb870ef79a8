package store

import (
	"context"
	"fmt"
	"sync"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/core/metadata/boltutil"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	bolt "go.etcd.io/bbolt"

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
