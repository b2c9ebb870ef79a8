package image

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/metadata/boltutil"
	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"

	"monopod.dev/monopod/internal/image/faults"
)

// Drop takes names and leases away, in one transaction, and collects what nobody holds then. It is for repairs: it takes also
// names of images that are not whole, and leases of anybody. What is not there is passed over.
func (s *Store) Drop(ctx context.Context, names, leaseIDs []string) error {
	ctx = s.scope(ctx)
	if err := s.changeNames(ctx, func(ctx context.Context) error {
		if err := s.deleteNames(ctx, names); err != nil {
			return err
		}
		for _, id := range leaseIDs {
			if err := s.leases.Delete(ctx, leases.Lease{ID: id}); err != nil && !errdefs.IsNotFound(err) {
				return fmt.Errorf("dropping the lease %s: %w", id, err)
			}
		}
		return nil
	}); err != nil {
		return err
	}
	return s.collect(ctx)
}

// changeNames changes names in one transaction, and makes the index anew before anybody else changes names: so it never
// remembers an image that was removed, and pulled again into other directories, meanwhile.
func (s *Store) changeNames(ctx context.Context, change func(ctx context.Context) error) error {
	s.namesMu.Lock()
	defer s.namesMu.Unlock()
	if err := faulty("image/names", func() error {
		return s.db.Update(func(tx *bolt.Tx) error { return change(boltutil.WithTransaction(ctx, tx)) })
	}); err != nil {
		return faults.NoRoom(err)
	}
	return s.index.rebuild(ctx)
}

// deleteNames deletes names within a transaction.
func (s *Store) deleteNames(ctx context.Context, names []string) error {
	for _, n := range names {
		if err := s.images.Delete(ctx, n); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("removing the name %s: %w", n, err)
		}
	}
	return nil
}
