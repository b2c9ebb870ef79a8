package store

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod.dev/monopod/internal/image/recipe"
	"monopod.dev/monopod/internal/kit/ids"
)

// Details is what people want to know of an image, beside what Image tells.
type Details struct {
	Image
	Created  time.Time // the zero time when the image does not say it
	Platform string
	// Target is what the image's names point to: its manifest, or an index with it.
	Target ocispec.Descriptor
	Layers []LayerDetails // the lowest first
	// RawConfig is the configuration file.
	RawConfig json.RawMessage
}

// LayerDetails is one layer.
type LayerDetails struct {
	Packed          ocispec.Descriptor // as registries have it
	DiffID, ChainID digest.Digest
	Size            int64 // on disk
	Recorded        bool  // it can be saved
}

// Inspect reads what is known of an image. Errors: NotFound, DataLoss.
func (s *Store) Inspect(ctx context.Context, id ids.ImageID) (Details, error) {
	ctx = s.Scope(ctx)
	e := s.index.byImageID(id)
	if e == nil {
		return Details{}, fmt.Errorf("image %s is not here: %w", id, errdefs.ErrNotFound)
	}
	d := Details{Image: e.image}
	target, manifest, err := s.Manifest(ctx, id)
	if err != nil {
		return d, fmt.Errorf("image %s: %w", id, err)
	}
	d.Target = target
	raw, err := content.ReadBlob(ctx, s.Content, manifest.Config)
	if err != nil {
		return d, fmt.Errorf("image %s: its configuration: %w", id, err)
	}
	var cfg ocispec.Image
	if err := json.Unmarshal(raw, &cfg); err != nil {
		return d, fmt.Errorf("image %s: its configuration: %w: %w", id, err, errdefs.ErrDataLoss)
	}
	d.RawConfig, d.Platform = raw, platforms.Format(cfg.Platform)
	if cfg.Created != nil {
		d.Created = *cfg.Created
	}
	for i, chain := range e.chains {
		usage, err := s.Snapshots.Usage(ctx, chain)
		if err != nil {
			return d, fmt.Errorf("image %s: layer %d: %w", id, i+1, err)
		}
		l := LayerDetails{DiffID: cfg.RootFS.DiffIDs[i], ChainID: digest.Digest(chain), Size: usage.Size}
		if i < len(manifest.Layers) {
			l.Packed = manifest.Layers[i]
		}
		_, err = os.Stat(recipe.Path(e.layers[len(e.layers)-1-i]))
		l.Recorded = err == nil
		d.Layers = append(d.Layers, l)
	}
	return d, nil
}

// Names returns all names of an image, those that are digests and the one that stands for none included.
func (s *Store) Names(id ids.ImageID) []string {
	names := s.index.names(id)
	slices.Sort(names)
	return names
}

// Reclaimable returns the bytes of the layers that these images have, and no other image. They come free with the images unless
// a pin holds them.
func (s *Store) Reclaimable(ctx context.Context, these []ids.ImageID) uint64 {
	ctx = s.Scope(ctx)
	s.index.mu.RLock()
	mine, others := map[string]bool{}, map[string]bool{}
	for id, e := range s.index.byID {
		set := others
		if slices.Contains(these, id) {
			set = mine
		}
		for _, c := range e.chains {
			set[c] = true
		}
	}
	s.index.mu.RUnlock()
	var freed uint64
	for c := range mine {
		if others[c] {
			continue
		}
		if usage, err := s.Snapshots.Usage(ctx, c); err == nil { // else it is gone already
			freed += uint64(usage.Size) // a size is not negative
		}
	}
	return freed
}

// Manifest returns the manifest of an image for this machine, and what its names point to: the manifest, or an index with it. Errors: NotFound.
func (s *Store) Manifest(ctx context.Context, imageID ids.ImageID) (ocispec.Descriptor, ocispec.Manifest, error) {
	var manifest ocispec.Manifest
	names := s.index.names(imageID)
	slices.Sort(names)
	if len(names) == 0 {
		return ocispec.Descriptor{}, manifest, fmt.Errorf("it was removed just now: %w", errdefs.ErrNotFound)
	}
	rec, err := s.names.images.Get(ctx, names[0])
	if err != nil {
		return ocispec.Descriptor{}, manifest, err
	}
	manifest, err = images.Manifest(ctx, s.Content, rec.Target, s.platform)
	return rec.Target, manifest, err
}

// Sharers names the images beside imageID that have a layer, by its chain id.
func (s *Store) Sharers(imageID ids.ImageID, chain string) []string {
	s.index.mu.RLock()
	defer s.index.mu.RUnlock()
	var out []string
	for id, other := range s.index.byID {
		if id != imageID && slices.Contains(other.chains, chain) {
			out = append(out, other.image.label())
		}
	}
	slices.Sort(out)
	return out
}

// label is the name by which a person knows the image.
func (img Image) label() string {
	switch {
	case len(img.RepoTags) > 0:
		return img.RepoTags[0]
	case len(img.RepoDigests) > 0:
		return img.RepoDigests[0]
	}
	return string(img.ID)
}

// FsInfo tells the directory that the store is in, and what the store takes there: bytes and inodes of the unpacked
// layers (as measured when they were unpacked) and of manifests, configurations and downloads. It is exact at the moment of
// the call, and cheap while nothing changes.
func (s *Store) FsInfo(ctx context.Context) (mountpoint string, usedBytes, inodes uint64, err error) {
	usedBytes, inodes, err = s.sums.of(s.Scope(ctx))
	if err != nil {
		return "", 0, 0, fmt.Errorf("usage of image store %s: %w", s.root, err)
	}
	bytes, files, err := s.Downloads.usage()
	if err != nil {
		return "", 0, 0, fmt.Errorf("usage of image store %s: %w", s.root, err)
	}
	return s.root, usedBytes + bytes, inodes + files, nil
}
