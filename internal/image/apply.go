package image

import (
	"context"
	"fmt"
	"io"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/pkg/archive"
	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// layerApplier unpacks layers without ever mounting anything. containerd's applier writes an overlay's upper directory
// directly, but mounts the lowest layer's directory (the snapshotter gives it as a bind mount) to a temporary place;
// a process that is killed there leaves the mount. The lowest layer's directory is as good as the mount of it.
type layerApplier struct {
	blobs   content.Provider
	overlay diff.Applier
}

// Apply implements diff.Applier.
func (a layerApplier) Apply(ctx context.Context, desc ocispec.Descriptor, mounts []mount.Mount, opts ...diff.ApplyOpt) (ocispec.Descriptor, error) {
	if len(mounts) == 1 && mounts[0].Type == "bind" {
		return a.applyTo(ctx, desc, mounts[0].Source)
	}
	return a.overlay.Apply(ctx, desc, mounts, opts...)
}

func (a layerApplier) applyTo(ctx context.Context, desc ocispec.Descriptor, dir string) (unpacked ocispec.Descriptor, err error) {
	blob, err := a.blobs.ReaderAt(ctx, desc)
	if err != nil {
		return unpacked, fmt.Errorf("opening the layer %s: %w", desc.Digest, err)
	}
	defer blob.Close()
	// The processors turn the layer's media type, step by step, into a plain tar: they decompress it.
	var errs []func() error
	var plain diff.StreamProcessor = diff.NewProcessorChain(desc.MediaType, content.NewReader(blob))
	for plain.MediaType() != ocispec.MediaTypeImageLayer {
		if plain, err = diff.GetProcessor(ctx, plain, nil); err != nil {
			return unpacked, fmt.Errorf("unpacking the layer %s of media type %s: %w", desc.Digest, desc.MediaType, err)
		}
		defer plain.Close()
		if p, ok := plain.(interface{ Err() error }); ok {
			errs = append(errs, p.Err)
		}
	}
	digester := digest.Canonical.Digester()
	tee := io.TeeReader(plain, digester.Hash())
	size, err := archive.Apply(ctx, dir, tee)
	if err != nil {
		return unpacked, fmt.Errorf("unpacking the layer %s: %w", desc.Digest, err)
	}
	if _, err := io.Copy(io.Discard, tee); err != nil { // what follows the tar belongs to the digest too
		return unpacked, fmt.Errorf("unpacking the layer %s: %w", desc.Digest, err)
	}
	for _, failed := range errs {
		if err := failed(); err != nil {
			return unpacked, fmt.Errorf("unpacking the layer %s: %w", desc.Digest, err)
		}
	}
	return ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Size: size, Digest: digester.Digest()}, nil
}
