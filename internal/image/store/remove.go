package store

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/image/imageref"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// Remove removes the image that ref names (an id, a tag or a digest) with all its names, and frees what nobody else
// uses before it returns. It is idempotent: an image that is not there is no error. Layers that a pin holds stay.
func (s *Store) Remove(ctx context.Context, ref string) error {
	name, err := imageref.Parse(ref)
	if err != nil {
		return err
	}
	ctx = s.Scope(ctx)
	e := s.index.entry(name)
	if e == nil {
		return s.removeBroken(ctx, name)
	}
	if err := s.names.change(ctx, func(ctx context.Context) error {
		return s.names.remove(ctx, s.index.names(e.image.ID)...)
	}); err != nil {
		return fmt.Errorf("removing image %s: %w", ref, err)
	}
	s.log.InfoContext(ctx, "image removed", "image", ref, "id", e.image.ID)
	if err := failpoint.Hit("image/remove/unnamed"); err != nil {
		return err
	}
	return s.garbage.collect(ctx)
}

// removeBroken removes a name that leads to an image which is not whole, and so is not listed.
func (s *Store) removeBroken(ctx context.Context, ref imageref.Ref) error {
	if ref.Name == nil {
		return nil
	}
	// As any change of names: a pull that has just made the image whole is not to be listed by a name that is gone.
	err := s.names.change(ctx, func(ctx context.Context) error { return s.names.images.Delete(ctx, ref.Name.String()) })
	switch {
	case errdefs.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("removing image %s: %w", ref.Name, err)
	}
	return s.garbage.collect(ctx)
}

// Untag takes names from an image; the ones that it does not have are passed over. An image without a name is gone.
func (s *Store) Untag(ctx context.Context, names ...string) error {
	ctx = s.Scope(ctx)
	if err := s.names.change(ctx, func(ctx context.Context) error { return s.names.remove(ctx, names...) }); err != nil {
		return err
	}
	if err := failpoint.Hit("image/untag/unnamed"); err != nil {
		return err
	}
	return s.garbage.collect(ctx)
}

// Drop takes names and leases away, in one transaction, and collects what nobody holds then. It is for repairs: it takes also
// names of images that are not whole, and leases of anybody. What is not there is passed over.
func (s *Store) Drop(ctx context.Context, names, leaseIDs []string) error {
	ctx = s.Scope(ctx)
	if err := s.names.change(ctx, func(ctx context.Context) error {
		if err := s.names.remove(ctx, names...); err != nil {
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
	return s.garbage.collect(ctx)
}
