package image

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	digest "github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/semaphore"

	"monopod.dev/monopod/internal/failpoint"
)

const (
	// maxLayersAtOnce is how many layers are fetched and unpacked at a time, by all pulls together.
	maxLayersAtOnce = 6
	// maxDocument is the largest manifest, index or configuration: they are read into memory.
	maxDocument = 8 << 20
)

// limits bounds what all pulls together do at a time.
type limits struct{ layers *semaphore.Weighted }

func newLimits() limits { return limits{layers: semaphore.NewWeighted(maxLayersAtOnce)} }

// unpack brings everything of the image that is missing into the store, and unpacks its layers. from is where to fetch
// from; nil, everything must be in the store already. The layers are not yet known to be on disk: publish sees to that.
func (s *Store) unpack(ctx context.Context, from remotes.Fetcher, target ocispec.Descriptor, track *tracker) error {
	if err := images.Dispatch(ctx, s.documents(from), nil, target); err != nil {
		return err
	}
	manifest, err := images.Manifest(ctx, s.content, target, s.platform)
	if err != nil {
		return err
	}
	cfg, err := s.readConfig(ctx, manifest.Config)
	if err != nil {
		return err
	}
	layers, err := layersOf(manifest, cfg)
	if err != nil || len(layers) == 0 {
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
	_, err = s.content.Update(ctx, info, "labels."+label)
	return err
}

// documents handles what describes an image: the index, the one manifest for this machine, the configuration. Each is
// fetched unless it is there, looked at, and made to hold the next.
func (s *Store) documents(from remotes.Fetcher) images.Handler {
	children := images.ChildrenHandler(s.content)
	// A manifest must not hold its compressed layers: the store does not keep them.
	children = images.SetChildrenMappedLabels(s.content, children, images.ChildGCLabelsFilterLayers)
	children = images.FilterPlatforms(children, s.platform)
	children = s.limitManifests(children)
	return images.Handlers(images.HandlerFunc(func(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		return nil, s.fetchDocument(ctx, from, desc)
	}), images.HandlerFunc(s.checkConfig), onlyDocuments(children))
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

// fetchDocument fetches a document that the store does not have. One that turns out not to be what its digest says is
// dropped: going on with it would fail for ever.
func (s *Store) fetchDocument(ctx context.Context, from remotes.Fetcher, desc ocispec.Descriptor) error {
	if err := checkDescriptor(desc); err != nil {
		return err
	}
	if desc.Size > maxDocument {
		return fmt.Errorf("the image's %s %s has %d bytes, more than %d: %w", desc.MediaType, desc.Digest, desc.Size, maxDocument, errdefs.ErrInvalidArgument)
	}
	if from == nil {
		return nil
	}
	lock := "blob://" + desc.Digest.String() // pulls of other images may want the same
	if err := s.locks.Lock(ctx, lock); err != nil {
		return err
	}
	defer s.locks.Unlock(lock)
	desc.URLs = nil // a manifest does not send this machine to other hosts
	_, err := remotes.FetchHandler(s.content, from)(ctx, desc)
	if errdefs.IsFailedPrecondition(err) {
		err = fmt.Errorf("the registry sent a damaged %s: %w", desc.MediaType, err)
		if aerr := s.content.Abort(ctx, remotes.MakeRefKey(ctx, desc)); aerr != nil && !errdefs.IsNotFound(aerr) {
			err = errors.Join(err, aerr)
		}
	}
	return err
}

// checkDescriptor looks at what a manifest says of a blob before it is used: the digest becomes a file's name.
func checkDescriptor(desc ocispec.Descriptor) error {
	if err := desc.Digest.Validate(); err != nil {
		return fmt.Errorf("digest %q: %w: %w", desc.Digest, err, errdefs.ErrInvalidArgument)
	}
	if desc.Size < 0 {
		return fmt.Errorf("blob %s has the size %d: %w", desc.Digest, desc.Size, errdefs.ErrInvalidArgument)
	}
	return nil
}

// layer is one layer of an image.
type layer struct {
	desc  ocispec.Descriptor // the compressed layer
	diff  digest.Digest      // of the plain tar
	chain string             // identifies this layer on those below it; its snapshot's name
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
