package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod.dev/monopod/internal/image/imageref"
)

// upperdirLabel is where the overlay snapshotter tells a snapshot's own directory.
const upperdirLabel = "containerd.io/snapshot/overlay.upperdir"

// Layers returns the directories of the image's unpacked layers, topmost first, as an overlay's lowerdir wants them.
// imageID is an image id; the image needs a name or a pin. There is always at least one directory: an image without
// layers has an empty one.
//
// The directories must not be written to. They stay until the image has neither name nor pin, so Pin comes first.
func (s *Store) Layers(ctx context.Context, imageID string) ([]string, error) {
	id, err := imageref.ParseID(imageID)
	if err != nil {
		return nil, err
	}
	if e := s.index.byImageID(id); e != nil {
		return append([]string(nil), e.layers...), nil
	}
	// No name any more, but maybe pinned by a container.
	ctx = s.scope(ctx)
	info, err := s.content.Info(ctx, digest.Digest(id))
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", imageID, err)
	}
	cfg, err := s.readConfig(ctx, ocispec.Descriptor{Digest: info.Digest, Size: info.Size})
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", imageID, err)
	}
	var e entry
	e.setChains(cfg)
	return s.directories(ctx, e.chains)
}

// directories returns the directories of snapshots that are given bottom first, topmost first.
func (s *Store) directories(ctx context.Context, chains []string) ([]string, error) {
	if len(chains) == 0 {
		return []string{filepath.Join(s.root, "empty")}, nil
	}
	dirs := make([]string, 0, len(chains))
	for i := len(chains) - 1; i >= 0; i-- {
		info, err := s.snaps.Stat(ctx, chains[i])
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
