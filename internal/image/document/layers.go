package document

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	digest "github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// ReadConfig reads an image's configuration from a store. Errors: InvalidArgument (it is no configuration), and those of the store.
func ReadConfig(ctx context.Context, from content.Provider, desc ocispec.Descriptor) (ocispec.Image, error) {
	var cfg ocispec.Image
	raw, err := content.ReadBlob(ctx, from, desc)
	if err != nil {
		return cfg, fmt.Errorf("image configuration %s: %w", desc.Digest, err)
	}
	if err := json.Unmarshal(raw, &cfg); err != nil {
		return cfg, fmt.Errorf("image configuration %s: %w: %w", desc.Digest, err, errdefs.ErrInvalidArgument)
	}
	return cfg, nil
}

// Chains are the chain ids of a configuration's layers, the lowest first: each names a layer on those below it.
func Chains(cfg ocispec.Image) []string {
	var chains []string
	for _, id := range identity.ChainIDs(slices.Clone(cfg.RootFS.DiffIDs)) {
		chains = append(chains, id.String())
	}
	return chains
}

// Layer is one layer of an image.
type Layer struct {
	Desc  ocispec.Descriptor // the compressed layer
	Diff  digest.Digest      // of the plain tar
	Chain string             // identifies this layer on those below it; its snapshot's name
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

// Layers matches the layers of a manifest, the lowest first, with what the configuration says they are unpacked.
func Layers(manifest ocispec.Manifest, cfg ocispec.Image) ([]Layer, error) {
	ids := cfg.RootFS.DiffIDs
	if len(ids) != len(manifest.Layers) {
		return nil, fmt.Errorf("the manifest has %d layers, the configuration %s says %d: %w",
			len(manifest.Layers), manifest.Config.Digest, len(ids), errdefs.ErrInvalidArgument)
	}
	for _, id := range ids {
		if err := CheckBlob(ocispec.Descriptor{Digest: id}); err != nil {
			return nil, fmt.Errorf("configuration %s: %w", manifest.Config.Digest, err)
		}
	}
	chains := identity.ChainIDs(append(ids[:0:0], ids...))
	layers := make([]Layer, len(ids))
	for i, desc := range manifest.Layers {
		err := CheckBlob(desc)
		if err == nil {
			err = checkLayerType(desc.MediaType)
		}
		if err != nil {
			return nil, fmt.Errorf("layer %d of the manifest: %w", i+1, err)
		}
		layers[i] = Layer{Desc: desc, Diff: ids[i], Chain: chains[i].String()}
	}
	return layers, nil
}
