package image

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"

	"monopod.dev/monopod/internal/image/archive"
	"monopod.dev/monopod/internal/image/faults"
	"monopod.dev/monopod/internal/image/imageref"
	"monopod.dev/monopod/internal/image/store"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
)

// LoadRequest says how to load an archive.
type LoadRequest struct {
	// Archive is an OCI image layout as a tar, or what `docker save` writes; compressed with gzip or zstd or not at all.
	Archive io.Reader
	// Name is what the image is to be called, instead of what the archive says; the archive must hold one image then.
	Name string
}

// LoadedImage is an image that an archive had.
type LoadedImage struct {
	ID ids.ImageID
	// Names are those that the archive (or LoadRequest.Name) gave it; none for an image that has its id alone.
	Names []string
}

// Load reads an archive and adds its images for this machine. Tags that exist already move to the loaded image. An image
// without a name can be used by its id. Images of an OCI layout are also named by their manifest's digest, so that a pod that asks
// for NAME@DIGEST finds them; the manifests of a docker-archive are lost, so there is no digest to name them by.
//
// When it fails, nothing of the archive stays. Errors: InvalidArgument (no such archive, or a damaged one), NotFound (nothing in it
// for this machine).
func (s *Store) Load(ctx context.Context, req LoadRequest) (loaded []LoadedImage, err error) {
	var name reference.Named
	if req.Name != "" {
		if name, err = imageref.ParseName(req.Name); err != nil {
			return nil, err
		}
		if _, ok := name.(reference.Digested); ok {
			return nil, fmt.Errorf("the name %q has a digest; give a tag: %w", req.Name, errdefs.ErrInvalidArgument)
		}
	}
	ctx = s.Scope(ctx)
	held, transfer, err := s.Begin(ctx, "archive")
	if err != nil {
		return nil, err
	}
	defer transfer.End(ctx, false) // an archive is read anew anyway: nothing to resume
	loaded, namings, err := s.load(held, req.Archive, name)
	if err == nil {
		err = transfer.Publish(held, namings...)
	}
	if err != nil {
		return nil, faults.NoRoom(err)
	}
	for _, l := range loaded {
		s.log.InfoContext(ctx, "image loaded from an archive", "id", l.ID, "names", l.Names)
	}
	return loaded, nil
}

// load brings the images of an archive into the store, for the transfer of ctx, and says what they are to be called.
func (s *Store) load(ctx context.Context, from io.Reader, name reference.Named) (loaded []LoadedImage, namings []store.Naming, err error) {
	images, err := s.archives.Read(ctx, from)
	if err != nil {
		return nil, nil, fmt.Errorf("loading an image archive: %w", faults.Legible(err))
	}
	if err := failpoint.Hit("image/load/read"); err != nil {
		return nil, nil, err
	}
	if name != nil {
		if len(images) > 1 {
			return nil, nil, fmt.Errorf("loading an image archive: it has %d images, so they cannot all be %s; leave the name out: %w",
				len(images), name, errdefs.ErrInvalidArgument)
		}
		images[0].Names = []string{name.String()}
	}
	for _, img := range images {
		id, err := s.loadImage(ctx, img)
		if err != nil {
			what := "image " + strings.Join(img.Names, ", ")
			if len(img.Names) == 0 {
				what = "an image without a name"
			}
			return nil, nil, fmt.Errorf("loading %s: %w", what, err)
		}
		loaded = append(loaded, LoadedImage{ID: id, Names: img.Names})
		namings = append(namings, store.Naming{Target: img.Target, Names: img.AllNames(id)})
	}
	return loaded, namings, nil
}

func (s *Store) loadImage(ctx context.Context, img archive.Image) (id ids.ImageID, err error) {
	if err := s.unpacker.Image(ctx, nil, img.Target, nil); err != nil {
		return "", err
	}
	whole, err := s.Check(ctx, img.Target)
	return whole.ID, err
}
