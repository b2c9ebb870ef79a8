// Package unpack makes of a manifest the image that it describes: it brings the documents and the layers that are missing from a source into a store, and
// unpacks the layers. Nothing that it makes has a name.
//
// It guarantees:
//   - a layer is in the store only when all of it came and both of its digests are right;
//   - layers that two images share are fetched and unpacked once, and a registry that sends nothing keeps nobody from what another one has (source.go);
//   - an image that is refused leaves nothing but downloads and documents, which the transfer holds, for another attempt;
//   - whatever an image is like, it takes bounded time, memory and room (Limits, package room).
//
// The layers are not known to be on disk when it returns: who publishes the image sees to that.
package unpack

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod.dev/monopod/internal/image/document"
	"monopod.dev/monopod/internal/image/faults"
	"monopod.dev/monopod/internal/image/registry"
	"monopod.dev/monopod/internal/image/room"
	"monopod.dev/monopod/internal/image/store"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// Image brings everything of the image that is missing into the store, and unpacks its layers, all held by the transfer of ctx. from is where to fetch
// from; nil, everything must be in the store already. track is told how far it is; it may be nil.
//
// Errors: InvalidArgument (it is no image, or none that may be), NotFound (a part is not there, or there is none for this machine), FailedPrecondition
// (what came is not what its digest says), ResourceExhausted (a limit, or the disk), and those of the source.
func (un *Unpacker) Image(ctx context.Context, from Source, target ocispec.Descriptor, track *Tracker) error {
	err := un.unpack(ctx, from, target, track)
	if err == nil {
		return nil
	}
	return faults.Legible(registry.Classify(err))
}

func (un *Unpacker) unpack(ctx context.Context, from Source, target ocispec.Descriptor, track *Tracker) error {
	if err := images.Dispatch(ctx, un.documents(from), nil, target); err != nil {
		return err
	}
	manifest, err := images.Manifest(ctx, un.Store.Content, target, un.Platform)
	if err != nil {
		return err
	}
	if !images.IsConfigType(manifest.Config.MediaType) {
		return fmt.Errorf("it is no container image: its configuration has the media type %q: %w", manifest.Config.MediaType, errdefs.ErrInvalidArgument)
	}
	cfg, err := document.ReadConfig(ctx, un.Store.Content, manifest.Config)
	if err != nil {
		return err
	}
	layers, err := document.Layers(manifest, cfg)
	if err != nil || len(layers) == 0 {
		return err
	}
	if err := un.checkRoom(ctx, layers); err != nil {
		return err
	}
	if err := failpoint.Hit("image/pull/manifest"); err != nil {
		return err
	}
	if err := un.unpackLayers(ctx, from, layers, track); err != nil {
		return err
	}
	// The configuration holds the layers, and whatever holds the configuration (a name, a pin) so holds them.
	info := content.Info{Digest: manifest.Config.Digest, Labels: map[string]string{store.LayersLabel: layers[len(layers)-1].Chain}}
	return failpoint.Around("image/configuration/label", func() error {
		_, err := un.Store.Content.Update(ctx, info, "labels."+store.LayersLabel)
		return err
	})
}

// checkRoom fails when the layers that are missing cannot have enough room. What they are unpacked is not known before, but it is hardly
// less than what they are compressed.
func (un *Unpacker) checkRoom(ctx context.Context, layers []document.Layer) error {
	var missing int64
	for _, l := range layers {
		if _, err := un.Store.Snapshots.Stat(ctx, l.Chain); err == nil {
			continue
		}
		if missing += min(l.Desc.Size, un.Limits.ImageBytes+1); missing > un.Limits.ImageBytes { // no sum of sizes runs over
			return fmt.Errorf("the layers of the image have more than %s: %w", room.Size(uint64(un.Limits.ImageBytes)), errdefs.ErrResourceExhausted) // positive
		}
	}
	return un.Room.Need(missing)
}
