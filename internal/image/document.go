package image

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// maxManifests is how many manifests an index may have: one for each platform, and what is attested of it.
const maxManifests = 1000

// checkStored looks at a manifest or an index of the store before containerd's package does, which gives its errors no class.
func (s *Store) checkStored(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	if !images.IsManifestType(desc.MediaType) && !images.IsIndexType(desc.MediaType) {
		return nil, nil
	}
	raw, err := content.ReadBlob(ctx, s.content, desc)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", desc.MediaType, desc.Digest, err)
	}
	if err := checkDocument(desc.MediaType, raw); err != nil {
		return nil, fmt.Errorf("%s %s: %w", desc.MediaType, desc.Digest, err)
	}
	return nil, nil
}

// checkDocument refuses what is no manifest or index, whichever its media type says it is, and one that may be taken for the other: two
// readers must not see two images in the same bytes (CVE-2021-41190). Errors: InvalidArgument.
//
// Of a key that appears twice the last one counts, and unknown keys are ignored, as everywhere.
func checkDocument(mediaType string, raw []byte) error {
	var doc struct {
		MediaType string          `json:"mediaType"`
		Config    json.RawMessage `json:"config"`
		Layers    json.RawMessage `json:"layers"`
		Manifests json.RawMessage `json:"manifests"`
		FSLayers  json.RawMessage `json:"fsLayers"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return fmt.Errorf("it is no JSON document of an image: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	isIndex := images.IsIndexType(mediaType)
	switch {
	case doc.FSLayers != nil:
		return fmt.Errorf("it is of Docker's schema 1, which is not supported; push the image again with a newer tool: %w", errdefs.ErrInvalidArgument)
	case isIndex && (doc.Config != nil || doc.Layers != nil || images.IsManifestType(doc.MediaType)):
		return fmt.Errorf("it should be an index, and has what a manifest has: %w", errdefs.ErrInvalidArgument)
	case !isIndex && (doc.Manifests != nil || images.IsIndexType(doc.MediaType)):
		return fmt.Errorf("it should be a manifest, and has what an index has: %w", errdefs.ErrInvalidArgument)
	case isIndex:
		return checkIndex(raw)
	}
	var manifest ocispec.Manifest
	if err := json.Unmarshal(raw, &manifest); err != nil {
		return fmt.Errorf("it is no manifest: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	if n := len(manifest.Layers); n > maxLayers {
		return fmt.Errorf("the image has %d layers, and an overlay takes %d at most; build it with fewer layers: %w", n, maxLayers, errdefs.ErrInvalidArgument)
	}
	for _, desc := range append([]ocispec.Descriptor{manifest.Config}, manifest.Layers...) {
		if err := checkDescriptor(desc); err != nil {
			return err
		}
	}
	return nil
}

func checkIndex(raw []byte) error {
	var index ocispec.Index
	if err := json.Unmarshal(raw, &index); err != nil {
		return fmt.Errorf("it is no index: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	if n := len(index.Manifests); n > maxManifests {
		return fmt.Errorf("it has %d manifests, at most %d are possible: %w", n, maxManifests, errdefs.ErrInvalidArgument)
	}
	return nil
}

// checkDepth counts the indexes of one image.
func checkDepth(indexes *int, desc ocispec.Descriptor) error {
	if images.IsIndexType(desc.MediaType) {
		*indexes++
	}
	if *indexes > maxIndexes {
		return fmt.Errorf("indexes within indexes, more than %d deep: %w", maxIndexes, errdefs.ErrInvalidArgument)
	}
	return nil
}

// checkDescriptor looks at what a manifest says of a blob before it is used: the digest becomes a file's name.
func checkDescriptor(desc ocispec.Descriptor) error {
	if err := desc.Digest.Validate(); err != nil {
		return fmt.Errorf("digest %.200q: %w: %w", desc.Digest, err, errdefs.ErrInvalidArgument)
	}
	if desc.Size < 0 {
		return fmt.Errorf("blob %s has the size %d: %w", desc.Digest, desc.Size, errdefs.ErrInvalidArgument)
	}
	return nil
}

// checkDocumentDescriptor is checkDescriptor for what is stored as it is.
func checkDocumentDescriptor(desc ocispec.Descriptor) error {
	if err := checkDescriptor(desc); err != nil {
		return err
	}
	if desc.Digest.Algorithm() != digest.Canonical {
		return fmt.Errorf("the image's %s %s: digests by %s are not supported for documents, only %s: %w",
			desc.MediaType, desc.Digest, desc.Digest.Algorithm(), digest.Canonical, errdefs.ErrInvalidArgument)
	}
	if desc.Size > maxDocument {
		return fmt.Errorf("the image's %s %s has %d bytes, more than %d: %w", desc.MediaType, desc.Digest, desc.Size, maxDocument, errdefs.ErrInvalidArgument)
	}
	return nil
}
