package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Document fetches a manifest, an index or a configuration, whose size is known and small: it reads it from the first host that has it as it should be. What breaks is tried again.
func (rs *Session) Document(ctx context.Context, desc ocispec.Descriptor) ([]byte, error) {
	if desc.Size == int64(len(desc.Data)) && desc.Digest == desc.Digest.Algorithm().FromBytes(desc.Data) {
		return desc.Data, nil // the manifest brings it along
	}
	desc.URLs = nil // a manifest does not send this machine to other hosts
	for try := 1; ; try++ {
		var by Served
		raw, err := readOnce(by.In(ctx), rs, desc)
		switch {
		case err == nil:
			return raw, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errdefs.IsFailedPrecondition(err):
			if !by.Distrust(err) {
				return nil, err
			}
			continue // another host may have it as it should be
		case !MayPass(err):
			return nil, err
		case try > MaxRetries:
			if !by.Distrust(err) {
				return nil, err
			}
			try = 1
		}
		if err := rs.Pause(ctx, try); err != nil {
			return nil, err
		}
	}
}

func readOnce(ctx context.Context, from remotes.Fetcher, desc ocispec.Descriptor) ([]byte, error) {
	body, err := from.Fetch(ctx, desc)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	raw, err := io.ReadAll(io.LimitReader(body, desc.Size+1))
	if err != nil && !errdefs.IsFailedPrecondition(err) { // which is how containerd's reader says that there is more
		return nil, err
	}
	than := ""
	switch n := int64(len(raw)); {
	case err != nil || n > desc.Size:
		than = "more than the"
	case n < desc.Size:
		than = fmt.Sprintf("only %d of the", n)
	}
	if than != "" {
		return nil, fmt.Errorf("the registry sent a damaged %s %s: %s %d bytes that it should have: %w", desc.MediaType, desc.Digest, than, desc.Size, errdefs.ErrFailedPrecondition)
	}
	if got := desc.Digest.Algorithm().FromBytes(raw); got != desc.Digest {
		return nil, fmt.Errorf("the registry sent a damaged %s: its digest is %s, not %s: %w", desc.MediaType, got, desc.Digest, errdefs.ErrFailedPrecondition)
	}
	return raw, nil
}

// Resolve asks what the reference means now. Errors: NotFound (the registry has no such image), InvalidArgument (it has something else).
func (rs *Session) Resolve(ctx context.Context) (ocispec.Descriptor, error) {
	if _, err := rs.fetcher(); err != nil {
		return ocispec.Descriptor{}, err
	}
	_, target, err := rs.resolver.Resolve(ctx, rs.ref)
	if err != nil {
		return target, err
	}
	err = rs.resolveType(ctx, &target)
	return target, err
}

// resolveType finds out what kind of manifest a registry has that does not say it, or that says only that it sends bytes
// or JSON, as a plain web server does: the manifest's own field tells, or else its form.
func (rs *Session) resolveType(ctx context.Context, target *ocispec.Descriptor) error {
	mediaType, _, err := mime.ParseMediaType(target.MediaType)
	switch {
	case target.MediaType == "", mediaType == "application/octet-stream", mediaType == "application/json":
	case err != nil || !images.IsManifestType(target.MediaType) && !images.IsIndexType(target.MediaType):
		return fmt.Errorf("the registry answers with media type %q, which is no image: %w", target.MediaType, errdefs.ErrInvalidArgument)
	default:
		return nil
	}
	if target.Size > maxManifest {
		return fmt.Errorf("the manifest has %d bytes, more than %d: %w", target.Size, maxManifest, errdefs.ErrInvalidArgument)
	}
	desc := *target
	desc.MediaType = ocispec.MediaTypeImageManifest // so that it is asked for as a manifest
	raw, err := rs.Document(ctx, desc)
	if err != nil {
		return err
	}
	kind, err := kindOfManifest(raw)
	if err != nil {
		return fmt.Errorf("the registry answers with media type %q, and %w: %w", target.MediaType, err, errdefs.ErrInvalidArgument)
	}
	target.MediaType = kind
	return nil
}

// kindOfManifest reads a document's media type: its own field (OCI image specification, manifest.md and image-index.md),
// which OCI documents may lack, or what its other fields make of it.
func kindOfManifest(raw []byte) (string, error) {
	var doc struct {
		MediaType string            `json:"mediaType"`
		Config    json.RawMessage   `json:"config"`
		Layers    json.RawMessage   `json:"layers"`
		Manifests json.RawMessage   `json:"manifests"`
		FSLayers  []json.RawMessage `json:"fsLayers"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return "", errors.New("what it sends is no manifest")
	}
	switch {
	case images.IsManifestType(doc.MediaType), images.IsIndexType(doc.MediaType):
		return doc.MediaType, nil
	case len(doc.FSLayers) > 0:
		return "", errors.New("what it sends is a manifest of schema 1, which nobody writes any more: push the image again")
	case doc.MediaType != "":
		return "", fmt.Errorf("what it sends says that it is %q", doc.MediaType)
	case doc.Manifests != nil && doc.Config == nil && doc.Layers == nil:
		return ocispec.MediaTypeImageIndex, nil
	case doc.Config != nil && doc.Manifests == nil:
		return ocispec.MediaTypeImageManifest, nil
	}
	return "", errors.New("what it sends is no manifest")
}
