package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod.dev/monopod/internal/image/document"
	"monopod.dev/monopod/internal/image/imageref"
	"monopod.dev/monopod/internal/kit/ids"
)

// upperdirLabel is where the overlay snapshotter tells a snapshot's own directory.
const upperdirLabel = "containerd.io/snapshot/overlay.upperdir"

// Layers returns the directories of the image's unpacked layers, topmost first, as an overlay's lowerdir wants them.
// The image needs a name or a pin. There is always at least one directory: an image without
// layers has an empty one.
//
// The directories must not be written to. They stay until the image has neither name nor pin, so Pin comes first.
func (s *Store) Layers(ctx context.Context, imageID ids.ImageID) ([]string, error) {
	id, err := imageref.ParseID(string(imageID))
	if err != nil {
		return nil, err
	}
	if e := s.index.byImageID(id); e != nil {
		return append([]string(nil), e.layers...), nil
	}
	// No name any more, but maybe pinned by a container.
	ctx = s.Scope(ctx)
	info, err := s.Content.Info(ctx, digest.Digest(id))
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", imageID, err)
	}
	cfg, err := document.ReadConfig(ctx, s.Content, ocispec.Descriptor{Digest: info.Digest, Size: info.Size})
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", imageID, err)
	}
	return s.Directories(ctx, document.Chains(cfg))
}

// Directories returns the directories of unpacked layers, by their chain ids, which are given lowest first: the topmost first.
func (s *Store) Directories(ctx context.Context, chains []string) ([]string, error) {
	if len(chains) == 0 {
		return []string{filepath.Join(s.root, "empty")}, nil
	}
	dirs := make([]string, 0, len(chains))
	for i := len(chains) - 1; i >= 0; i-- {
		info, err := s.Snapshots.Stat(ctx, chains[i])
		if err != nil {
			return nil, fmt.Errorf("the unpacked layer %s: %w", chains[i], err)
		}
		dir := info.Labels[upperdirLabel]
		if dir == "" {
			return nil, fmt.Errorf("the unpacked layer %s: the snapshotter does not tell its directory: %w", chains[i], errdefs.ErrInternal)
		}
		if _, err := os.Stat(dir); err != nil {
			return nil, fmt.Errorf("the unpacked layer %s: %w: %w", chains[i], err, errdefs.ErrNotFound)
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

// Check reads what the store has of the image that a manifest or an index describes. It fails when anything of it is missing.
func (s *Store) Check(ctx context.Context, target ocispec.Descriptor) (Image, error) {
	e, err := s.inspect(ctx, target)
	if err != nil {
		return Image{}, err
	}
	return e.image, nil
}

// Have returns the image that all these names point to by way of target already.
func (s *Store) Have(names []string, target digest.Digest) (Image, bool) {
	return s.index.whole(names, target)
}

// inspect reads what the store has of the image that a name points to. It fails when anything of it is missing.
func (s *Store) inspect(ctx context.Context, target ocispec.Descriptor) (*entry, error) {
	manifest, err := images.Manifest(ctx, s.Content, target, s.platform)
	if err != nil {
		return nil, err
	}
	if !images.IsConfigType(manifest.Config.MediaType) {
		return nil, fmt.Errorf("%s is no container image: its configuration has the media type %q: %w",
			target.Digest, manifest.Config.MediaType, errdefs.ErrInvalidArgument)
	}
	cfg, err := document.ReadConfig(ctx, s.Content, manifest.Config)
	if err != nil {
		return nil, err
	}
	e := &entry{image: Image{ID: ids.ImageID(manifest.Config.Digest), Config: cfg.Config}}
	e.image.Size = uint64(target.Size + manifest.Config.Size)
	if e.chains = document.Chains(cfg); len(e.chains) > 0 {
		e.image.ChainID = e.chains[len(e.chains)-1]
	}
	for _, chain := range e.chains {
		usage, err := s.Snapshots.Usage(ctx, chain)
		if err != nil {
			return nil, fmt.Errorf("the unpacked layer %s: %w", chain, err)
		}
		e.image.Size += uint64(usage.Size)
	}
	e.layers, err = s.Directories(ctx, e.chains)
	return e, err
}
