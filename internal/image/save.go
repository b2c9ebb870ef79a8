package image

import (
	"context"
	"fmt"
	"io"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/image/archive"
	"monopod.dev/monopod/internal/image/store"
	"monopod.dev/monopod/internal/kit/ids"
)

// Save writes the images that refs name, each with all its tags, as one tar: an OCI image layout that is a docker-archive too. The
// configurations and the layers' tars are those that the images were pulled or loaded with, byte for byte, so that whoever loads the
// archive finds the same image ids. Layers are not compressed. The same images make the same archive.
//
// Errors: NotFound (an image that is not there), FailedPrecondition (a layer was unpacked by a version that kept no record of its
// tar, or one whose tar cannot be written again), DataLoss (a layer is not what it was unpacked from).
// What fails before the first byte is found before; DataLoss may come late, and what is written is of no use then.
func (s *Store) Save(ctx context.Context, refs []string, w io.Writer) error {
	if len(refs) == 0 {
		return fmt.Errorf("saving images: name at least one: %w", errdefs.ErrInvalidArgument)
	}
	ctx = s.Scope(ctx)
	held, transfer, err := s.Begin(ctx, "save")
	if err != nil {
		return err
	}
	defer transfer.End(ctx, false)
	out := archive.Writer{Content: s.Content, Layers: s.Store}
	added := map[ids.ImageID]bool{}
	for _, ref := range refs {
		img, err := s.Get(held, ref)
		if errdefs.IsNotFound(err) {
			return fmt.Errorf("saving image %s: it is not here: %w", ref, errdefs.ErrNotFound)
		}
		if err != nil {
			return err
		}
		if added[img.ID] {
			continue
		}
		added[img.ID] = true
		if err := s.addTo(held, &out, transfer, img); err != nil {
			return fmt.Errorf("saving image %s: %w", ref, err)
		}
	}
	if err := out.Write(held, w); err != nil {
		return fmt.Errorf("saving images: %w", err)
	}
	return nil
}

// addTo adds an image to an archive. From now on the transfer holds it.
func (s *Store) addTo(ctx context.Context, out *archive.Writer, transfer *store.Transfer, img store.Image) error {
	if err := transfer.Hold(ctx, img.ID); err != nil {
		return err
	}
	target, manifest, err := s.Manifest(ctx, img.ID)
	if err != nil {
		return err
	}
	return out.Add(ctx, archive.Stored{ID: img.ID, Tags: img.RepoTags, Target: target, Manifest: manifest})
}
