package image

import (
	"bytes"
	"context"
	"errors"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// fetchWhole brings a document into the store, unless it is there: its size is known and small. It is read before the store is written to, which one does at a time: who waits for a
// silent registry holds up nobody who has the same document from another one.
func (s *Store) fetchWhole(ctx context.Context, from Source, desc ocispec.Descriptor) (err error) {
	ref := remotes.MakeRefKey(ctx, desc)
	var raw []byte
	if _, err := s.content.Info(ctx, desc.Digest); errdefs.IsNotFound(err) {
		if raw, err = from.Document(ctx, desc); err != nil {
			return err
		}
	}
	w, err := content.OpenWriter(ctx, s.content, content.WithRef(ref), content.WithDescriptor(desc))
	if errdefs.IsAlreadyExists(err) {
		return nil // and the lease holds it now
	}
	if err != nil {
		return err
	}
	defer func() {
		w.Close() // what is not committed is dropped
		if err != nil {
			if aerr := s.content.Abort(context.WithoutCancel(ctx), ref); aerr != nil && !errdefs.IsNotFound(aerr) {
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
