package unpack

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod.dev/monopod/internal/image/document"
)

// documents handles what describes an image: the index, the one manifest for this machine, the configuration. Each is
// fetched unless it is there, looked at, and made to hold the next.
func (un *Unpacker) documents(from Source) images.Handler {
	children := images.ChildrenHandler(un.Store.Content)
	// A manifest must not hold its compressed layers: the store does not keep them.
	children = images.SetChildrenMappedLabels(un.Store.Content, children, images.ChildGCLabelsFilterLayers)
	children = images.FilterPlatforms(children, un.Platform)
	children = un.limitManifests(children)
	indexes := 0 // of a level there is only one
	return images.Handlers(images.HandlerFunc(func(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		if err := checkDepth(&indexes, desc); err != nil {
			return nil, err
		}
		return nil, un.fetchDocument(ctx, from, desc)
	}), images.HandlerFunc(un.checkStored), images.HandlerFunc(un.checkConfig), onlyDocuments(children))
}

// checkStored looks at a document that the store has by now.
func (un *Unpacker) checkStored(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	return nil, document.CheckStored(ctx, un.Store.Content, desc)
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
func (un *Unpacker) fetchDocument(ctx context.Context, from Source, desc ocispec.Descriptor) error {
	if err := document.CheckDescriptor(desc); err != nil {
		return err
	}
	if from == nil {
		return nil
	}
	unlock, err := un.locks.Lock(ctx, "blob://"+registryOf(from)+"/"+desc.Digest.String()) // pulls of other images may want the same
	if err != nil {
		return err
	}
	defer unlock()
	return un.fetchWhole(ctx, from, desc)
}

// checkDepth counts the indexes of one image.
func checkDepth(indexes *int, desc ocispec.Descriptor) error {
	if images.IsIndexType(desc.MediaType) {
		*indexes++
	}
	if *indexes > document.MaxIndexes {
		return fmt.Errorf("indexes within indexes, more than %d deep: %w", document.MaxIndexes, errdefs.ErrInvalidArgument)
	}
	return nil
}

// fetchWhole brings a document into the store, unless it is there: its size is known and small. It is read before the store is written to, which one does at a time: who waits for a
// silent registry holds up nobody who has the same document from another one.
func (un *Unpacker) fetchWhole(ctx context.Context, from Source, desc ocispec.Descriptor) (err error) {
	ref := remotes.MakeRefKey(ctx, desc)
	var raw []byte
	if _, err := un.Store.Content.Info(ctx, desc.Digest); errdefs.IsNotFound(err) {
		if raw, err = from.Document(ctx, desc); err != nil {
			return err
		}
	}
	w, err := content.OpenWriter(ctx, un.Store.Content, content.WithRef(ref), content.WithDescriptor(desc))
	if errdefs.IsAlreadyExists(err) {
		return nil // and the lease holds it now
	}
	if err != nil {
		return err
	}
	defer func() {
		w.Close() // what is not committed is dropped
		if err != nil {
			if aerr := un.Store.Content.Abort(context.WithoutCancel(ctx), ref); aerr != nil && !errdefs.IsNotFound(aerr) {
				err = errors.Join(err, aerr)
			}
		}
	}()
	if raw == nil { // it was there, and is gone
		if raw, err = from.Document(ctx, desc); err != nil {
			return err
		}
	}
	if err := w.Truncate(0); err != nil { // what a killed process has left
		return err
	}
	return content.Copy(ctx, w, bytes.NewReader(raw), desc.Size, desc.Digest)
}

// limitManifests takes the one manifest of an index that fits this machine best, and names what there is when none does.
func (un *Unpacker) limitManifests(children images.HandlerFunc) images.HandlerFunc {
	limited := images.LimitManifests(children, un.Platform, 1)
	return func(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		out, err := limited(ctx, desc)
		if errdefs.IsNotFound(err) && images.IsIndexType(desc.MediaType) {
			return nil, un.noPlatform(ctx, desc)
		}
		return out, err
	}
}

func (un *Unpacker) noPlatform(ctx context.Context, index ocispec.Descriptor) error {
	all, err := images.Children(ctx, un.Store.Content, index)
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
func (un *Unpacker) checkConfig(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	if !images.IsConfigType(desc.MediaType) {
		return nil, nil
	}
	cfg, err := document.ReadConfig(ctx, un.Store.Content, desc)
	if err != nil {
		return nil, err
	}
	if cfg.OS == "" || cfg.Architecture == "" {
		return nil, nil
	}
	if has := platforms.Normalize(cfg.Platform); !un.Platform.Match(has) {
		return nil, fmt.Errorf("the image is for %s, this machine is %s: %w",
			platforms.Format(has), platforms.Format(platforms.DefaultSpec()), errdefs.ErrNotFound)
	}
	return nil, nil
}
