package store

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/metadata/boltutil"
	"github.com/containerd/errdefs"
	digest "github.com/opencontainers/go-digest"
	bolt "go.etcd.io/bbolt"

	"monopod.dev/monopod/internal/image/faults"
	"monopod.dev/monopod/internal/image/imageref"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/kit/preallocate"
)

// Pin keeps the layers of the image for user until Unpin, whatever happens to the image's names.
// The pin is on disk when Pin returns. It is idempotent. An image that is not there is NotFound.
func (s *Store) Pin(ctx context.Context, imageID ids.ImageID, user ids.ContainerID) error {
	id, err := imageref.ParseID(string(imageID))
	if err != nil {
		return err
	}
	if user == "" {
		return fmt.Errorf("pin of image %s: the user must not be empty: %w", imageID, errdefs.ErrInvalidArgument)
	}
	ctx = s.Scope(ctx)
	err = failpoint.Around("image/pin", func() error {
		return s.db.Update(func(tx *bolt.Tx) error {
			if err := s.keepAhead(tx.Size()); err != nil {
				return err
			}
			ctx := boltutil.WithTransaction(ctx, tx)
			if _, err := s.Content.Info(ctx, digest.Digest(id)); err != nil {
				return err
			}
			lease, err := s.leases.Create(ctx, leases.WithID(PinID(id, user)),
				leases.WithLabel(pinImageLabel, string(id)), leases.WithLabel(pinUserLabel, string(user)))
			if err != nil {
				return err
			}
			return s.leases.AddResource(ctx, lease, leases.Resource{ID: string(id), Type: "content"})
		})
	})
	if err != nil && !errdefs.IsAlreadyExists(err) {
		return fmt.Errorf("pin of image %s for %s: %w", imageID, user, faults.NoRoom(err))
	}
	return nil
}

// aheadOfPins is the room in bytes that the metadata's file has beyond what is used when something is pinned, so that it can be unpinned
// when the disk is full.
const aheadOfPins = 1 << 20

// keepAhead takes that room, where it is not there.
func (s *Store) keepAhead(used int64) error {
	if used+aheadOfPins <= s.ballast.Load() {
		return nil
	}
	want := (used/aheadOfPins + 3) * aheadOfPins
	if err := preallocate.File(s.metadata, want); err != nil {
		return err
	}
	s.ballast.Store(want)
	return nil
}

// Unpin gives up what Pin took. It is idempotent. The layers of an image that has no name and no pin any more are
// removed soon after.
func (s *Store) Unpin(ctx context.Context, imageID ids.ImageID, user ids.ContainerID) error {
	id, err := imageref.ParseID(string(imageID))
	if err != nil {
		return err
	}
	err = failpoint.Around("image/unpin", func() error {
		return s.leases.Delete(s.Scope(ctx), leases.Lease{ID: PinID(id, user)})
	})
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("unpin of image %s for %s: %w", imageID, user, faults.NoRoom(err))
	}
	if s.index.byImageID(id) == nil {
		s.garbage.kick()
	}
	return nil
}

// Pins returns the images of each user that holds a pin, so that a user who crashed between taking a pin and writing
// down why can give it back. A user with pins on several images appears with each of them.
func (s *Store) Pins(ctx context.Context) (map[ids.ContainerID][]ids.ImageID, error) {
	all, err := s.leases.List(s.Scope(ctx))
	if err != nil {
		return nil, fmt.Errorf("reading the pins: %w", err)
	}
	pins := map[ids.ContainerID][]ids.ImageID{}
	for _, l := range all {
		if of := LeaseOf(l.Labels); of.PinnedImage != "" {
			pins[of.PinUser] = append(pins[of.PinUser], of.PinnedImage)
		}
	}
	return pins, nil
}
