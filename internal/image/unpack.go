package image

import (
	"context"
	"fmt"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	digest "github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod.dev/monopod/internal/image/faults"
	"monopod.dev/monopod/internal/image/registry"
	"monopod.dev/monopod/internal/image/room"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// unpack brings everything of the image that is missing into the store, and unpacks its layers. from is where to fetch
// from; nil, everything must be in the store already. The layers are not yet known to be on disk: publish sees to that.
func (s *Store) unpack(ctx context.Context, from Source, target ocispec.Descriptor, track *tracker) error {
	err := s.unpackTarget(ctx, from, target, track)
	if err == nil {
		return nil
	}
	return faults.Legible(registry.Classify(err))
}

func (s *Store) unpackTarget(ctx context.Context, from Source, target ocispec.Descriptor, track *tracker) error {
	if err := images.Dispatch(ctx, s.documents(from), nil, target); err != nil {
		return err
	}
	manifest, err := images.Manifest(ctx, s.content, target, s.platform)
	if err != nil {
		return err
	}
	if !images.IsConfigType(manifest.Config.MediaType) {
		return fmt.Errorf("it is no container image: its configuration has the media type %q: %w", manifest.Config.MediaType, errdefs.ErrInvalidArgument)
	}
	cfg, err := s.readConfig(ctx, manifest.Config)
	if err != nil {
		return err
	}
	layers, err := layersOf(manifest, cfg)
	if err != nil || len(layers) == 0 {
		return err
	}
	if err := s.checkRoom(ctx, layers); err != nil {
		return err
	}
	if err := failpoint.Hit("image/pull/manifest"); err != nil {
		return err
	}
	if err := s.unpackLayers(ctx, from, layers, track); err != nil {
		return err
	}
	// The configuration holds the layers, and whatever holds the configuration (a name, a pin) so holds them.
	label := "containerd.io/gc.ref.snapshot." + snapshotterName
	info := content.Info{Digest: manifest.Config.Digest, Labels: map[string]string{label: layers[len(layers)-1].chain}}
	return faulty("image/configuration/label", func() error {
		_, err := s.content.Update(ctx, info, "labels."+label)
		return err
	})
}

// documents handles what describes an image: the index, the one manifest for this machine, the configuration. Each is
// fetched unless it is there, looked at, and made to hold the next.
func (s *Store) documents(from Source) images.Handler {
	children := images.ChildrenHandler(s.content)
	// A manifest must not hold its compressed layers: the store does not keep them.
	children = images.SetChildrenMappedLabels(s.content, children, images.ChildGCLabelsFilterLayers)
	children = images.FilterPlatforms(children, s.platform)
	children = s.limitManifests(children)
	indexes := 0 // of a level there is only one
	return images.Handlers(images.HandlerFunc(func(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		if err := checkDepth(&indexes, desc); err != nil {
			return nil, err
		}
		return nil, s.fetchDocument(ctx, from, desc)
	}), images.HandlerFunc(s.checkStored), images.HandlerFunc(s.checkConfig), onlyDocuments(children))
}

// onlyDocuments leaves out the layers.
func onlyDocuments(children images.HandlerFunc) images.HandlerFunc {
	return func(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		all, err := children(ctx, desc)
		if err != nil {
			return nil, err
		}
		var out []ocispec.Descriptor
		for _, c := range all {
			if images.IsManifestType(c.MediaType) || images.IsIndexType(c.MediaType) || images.IsConfigType(c.MediaType) {
				out = append(out, c)
			}
		}
		return out, nil
	}
}

// fetchDocument fetches a document that the store does not have.
func (s *Store) fetchDocument(ctx context.Context, from Source, desc ocispec.Descriptor) error {
	if err := checkDocumentDescriptor(desc); err != nil {
		return err
	}
	if from == nil {
		return nil
	}
	unlock, err := s.locks.Lock(ctx, "blob://"+registryOf(from)+"/"+desc.Digest.String()) // pulls of other images may want the same
	if err != nil {
		return err
	}
	defer unlock()
	return s.fetchWhole(ctx, from, desc)
}

// layer is one layer of an image.
type layer struct {
	desc  ocispec.Descriptor // the compressed layer
	diff  digest.Digest      // of the plain tar
	chain string             // identifies this layer on those below it; its snapshot's name
}

// checkLayerType refuses what is no tar, compressed or not: encrypted layers, and file system images.
func checkLayerType(mediaType string) error {
	base, suffix, _ := strings.Cut(mediaType, "+")
	switch base {
	case "application/vnd.oci.image.layer.v1.tar", "application/vnd.oci.image.layer.nondistributable.v1.tar",
		images.MediaTypeDockerSchema2Layer, images.MediaTypeDockerSchema2LayerForeign,
		images.MediaTypeDockerSchema2LayerGzip, images.MediaTypeDockerSchema2LayerForeignGzip, images.MediaTypeDockerSchema2LayerZstd:
		if suffix == "" || suffix == "gzip" || suffix == "zstd" {
			return nil
		}
	}
	return fmt.Errorf("media type %q is no layer that can be unpacked (a tar, plain or with gzip or zstd): %w",
		mediaType, errdefs.ErrInvalidArgument)
}

// layersOf matches the layers of a manifest, the lowest first, with what the configuration says they are unpacked.
func layersOf(manifest ocispec.Manifest, cfg ocispec.Image) ([]layer, error) {
	ids := cfg.RootFS.DiffIDs
	if len(ids) != len(manifest.Layers) {
		return nil, fmt.Errorf("the manifest has %d layers, the configuration %s says %d: %w",
			len(manifest.Layers), manifest.Config.Digest, len(ids), errdefs.ErrInvalidArgument)
	}
	for _, id := range ids {
		if err := checkDescriptor(ocispec.Descriptor{Digest: id}); err != nil {
			return nil, fmt.Errorf("configuration %s: %w", manifest.Config.Digest, err)
		}
	}
	chains := identity.ChainIDs(append(ids[:0:0], ids...))
	layers := make([]layer, len(ids))
	for i, desc := range manifest.Layers {
		err := checkDescriptor(desc)
		if err == nil {
			err = checkLayerType(desc.MediaType)
		}
		if err != nil {
			return nil, fmt.Errorf("layer %d of the manifest: %w", i+1, err)
		}
		layers[i] = layer{desc: desc, diff: ids[i], chain: chains[i].String()}
	}
	return layers, nil
}

// checkRoom fails when the layers that are missing cannot have enough room. What they are unpacked is not known before, but it is hardly
// less than what they are compressed.
func (s *Store) checkRoom(ctx context.Context, layers []layer) error {
	var missing int64
	for _, l := range layers {
		if _, err := s.snaps.Stat(ctx, l.chain); err == nil {
			continue
		}
		if missing += min(l.desc.Size, s.limits.imageBytes+1); missing > s.limits.imageBytes { // no sum of sizes runs over
			return fmt.Errorf("the layers of the image have more than %s: %w", room.Size(uint64(s.limits.imageBytes)), errdefs.ErrResourceExhausted) //nolint:gosec // positive
		}
	}
	return s.room.Need(missing)
}

// limitManifests takes the one manifest of an index that fits this machine best, and names what there is when none does.
func (s *Store) limitManifests(children images.HandlerFunc) images.HandlerFunc {
	limited := images.LimitManifests(children, s.platform, 1)
	return func(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		out, err := limited(ctx, desc)
		if errdefs.IsNotFound(err) && images.IsIndexType(desc.MediaType) {
			return nil, s.noPlatform(ctx, desc)
		}
		return out, err
	}
}

func (s *Store) noPlatform(ctx context.Context, index ocispec.Descriptor) error {
	all, err := images.Children(ctx, s.content, index)
	if err != nil {
		return err
	}
	var has []string
	for _, m := range all {
		if m.Platform != nil && m.Platform.OS != "unknown" {
			has = append(has, platforms.Format(*m.Platform))
		}
	}
	return fmt.Errorf("the image has no variant for this machine (%s), it has %v: %w",
		platforms.Format(platforms.DefaultSpec()), has, errdefs.ErrNotFound)
}

// checkConfig looks at an image's configuration before its layers are fetched: is the image for this machine at all?
// A configuration that does not say what it is for is believed to fit.
func (s *Store) checkConfig(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	if !images.IsConfigType(desc.MediaType) {
		return nil, nil
	}
	cfg, err := s.readConfig(ctx, desc)
	if err != nil {
		return nil, err
	}
	if cfg.OS == "" || cfg.Architecture == "" {
		return nil, nil
	}
	if has := platforms.Normalize(cfg.Platform); !s.platform.Match(has) {
		return nil, fmt.Errorf("the image is for %s, this machine is %s: %w",
			platforms.Format(has), platforms.Format(platforms.DefaultSpec()), errdefs.ErrNotFound)
	}
	return nil, nil
}
