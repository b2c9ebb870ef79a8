// Package document reads what describes an image (indexes, manifests, configurations), refuses what is none, or may be taken for another, and makes
// the manifests of images that came without one. Documents are hostile input: what Check has passed fits into memory and an overlay, and its digests
// can be names of files.
package document

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

// Limits of documents.
const (
	// MaxSize is the largest manifest, index or configuration: they are read into memory. Registries take 4 MiB at most.
	MaxSize = 8 << 20
	// MaxLayers is how many lower directories the kernel's overlay takes.
	MaxLayers = 500
	// MaxIndexes is how many indexes may lie within one another.
	MaxIndexes = 4
)

// maxManifests is how many manifests an index may have: one for each platform, and what is attested of it.
const maxManifests = 1000

// CheckStored is Check for a document of a store; what is neither a manifest nor an index passes. It goes before containerd's package, which gives its
// errors no class.
func CheckStored(ctx context.Context, from content.Provider, desc ocispec.Descriptor) error {
	if !images.IsManifestType(desc.MediaType) && !images.IsIndexType(desc.MediaType) {
		return nil
	}
	raw, err := content.ReadBlob(ctx, from, desc)
	if err != nil {
		return fmt.Errorf("%s %s: %w", desc.MediaType, desc.Digest, err)
	}
	if err := Check(desc.MediaType, raw); err != nil {
		return fmt.Errorf("%s %s: %w", desc.MediaType, desc.Digest, err)
	}
	return nil
}

// Check refuses what is no manifest or index, whichever its media type says it is, and one that may be taken for the other: two
// readers must not see two images in the same bytes (CVE-2021-41190). Errors: InvalidArgument.
//
// Of a key that appears twice the last one counts, and unknown keys are ignored, as everywhere.
func Check(mediaType string, raw []byte) error {
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
	if n := len(manifest.Layers); n > MaxLayers {
		return fmt.Errorf("the image has %d layers, and an overlay takes %d at most; build it with fewer layers: %w", n, MaxLayers, errdefs.ErrInvalidArgument)
	}
	for _, desc := range append([]ocispec.Descriptor{manifest.Config}, manifest.Layers...) {
		if err := CheckBlob(desc); err != nil {
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

// CheckBlob looks at what a manifest says of a blob before it is used: the digest becomes a file's name.
func CheckBlob(desc ocispec.Descriptor) error {
	if err := desc.Digest.Validate(); err != nil {
		return fmt.Errorf("digest %.200q: %w: %w", desc.Digest, err, errdefs.ErrInvalidArgument)
	}
	if desc.Size < 0 {
		return fmt.Errorf("blob %s has the size %d: %w", desc.Digest, desc.Size, errdefs.ErrInvalidArgument)
	}
	return nil
}

// CheckDescriptor is CheckBlob for a document, which is stored as it is.
func CheckDescriptor(desc ocispec.Descriptor) error {
	if err := CheckBlob(desc); err != nil {
		return err
	}
	if desc.Digest.Algorithm() != digest.Canonical {
		return fmt.Errorf("the image's %s %s: digests by %s are not supported for documents, only %s: %w",
			desc.MediaType, desc.Digest, desc.Digest.Algorithm(), digest.Canonical, errdefs.ErrInvalidArgument)
	}
	if desc.Size > MaxSize {
		return fmt.Errorf("the image's %s %s has %d bytes, more than %d: %w", desc.MediaType, desc.Digest, desc.Size, MaxSize, errdefs.ErrInvalidArgument)
	}
	return nil
}
