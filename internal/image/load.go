package image

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Load reads an archive (an OCI image layout as a tar, or what `docker save` writes; compressed with gzip or zstd or
// not at all), and adds its images for this machine. It returns their names; an image whose archive gives it none is
// named by its id. Tags that exist already move to the loaded image.
//
// Errors: InvalidArgument (no such archive, or a damaged one), NotFound (nothing in it for this machine).
func (s *Store) Load(ctx context.Context, r io.Reader) (names []string, err error) {
	ctx = s.scope(ctx)
	ctx, lease, end, err := s.beginTransfer(ctx, "archive")
	if err != nil {
		return nil, err
	}
	defer func() { end(false) }() // an archive is read anew anyway: nothing to resume

	index, err := s.readArchive(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("loading an image archive: %w", err)
	}
	namings, err := s.archiveImages(ctx, index)
	if err != nil {
		return nil, fmt.Errorf("loading an image archive: %w", err)
	}
	nothingToFetch := images.HandlerFunc(func(context.Context, ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		return nil, nil
	})
	for i := range namings {
		n := &namings[i]
		if err := s.unpack(ctx, nothingToFetch, n.target); err != nil {
			return nil, fmt.Errorf("loading image %s: %w", strings.Join(n.names, ", "), err)
		}
		e, err := s.inspect(ctx, n.target)
		if err != nil {
			return nil, fmt.Errorf("loading image %s: %w", strings.Join(n.names, ", "), err)
		}
		if len(n.names) == 0 {
			n.names = []string{e.image.ID}
		}
		names = append(names, n.names...)
	}
	if err := s.publish(ctx, lease, namings...); err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "images loaded from an archive", "images", names)
	return names, nil
}

// readArchive stores the blobs of an archive and returns the index of its images.
func (s *Store) readArchive(ctx context.Context, r io.Reader) (ocispec.Index, error) {
	var index ocispec.Index
	plain, err := compression.DecompressStream(r)
	if err != nil {
		return index, fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	defer plain.Close()
	desc, err := archive.ImportIndex(ctx, ownRefs{s.content, "load-" + rand.Text() + "-"}, plain)
	if err != nil {
		if errdefs.Resolve(err) == errdefs.ErrUnknown {
			err = fmt.Errorf("%w; it should be an OCI image layout or the output of docker save: %w", err, errdefs.ErrInvalidArgument)
		}
		return index, err
	}
	raw, err := content.ReadBlob(ctx, s.content, desc)
	if err != nil {
		return index, err
	}
	if err := json.Unmarshal(raw, &index); err != nil {
		return index, fmt.Errorf("index.json: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	return index, nil
}

// archiveImages picks the images of an archive that fit this machine, each with all of its names.
func (s *Store) archiveImages(ctx context.Context, index ocispec.Index) ([]naming, error) {
	var out []naming
	var skipped []string
	at := map[digest.Digest]int{}
	for _, m := range index.Manifests {
		if m.Platform != nil && !s.platform.Match(*m.Platform) {
			skipped = append(skipped, platforms.Format(*m.Platform))
			continue
		}
		if !images.IsManifestType(m.MediaType) && !images.IsIndexType(m.MediaType) {
			continue
		}
		i, ok := at[m.Digest]
		if !ok {
			i = len(out)
			at[m.Digest] = i
			out = append(out, naming{target: ocispec.Descriptor{MediaType: m.MediaType, Digest: m.Digest, Size: m.Size}})
		}
		if name := archiveName(m.Annotations); name != "" {
			out[i].names = append(out[i].names, name)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the archive has no image for this machine (%s), it has %v: %w",
			platforms.Format(platforms.DefaultSpec()), skipped, errdefs.ErrNotFound)
	}
	return out, nil
}

// archiveName reads an image's name from its annotations: the full name that containerd, buildkit and docker write, or
// else the OCI ref name when it is more than a bare tag.
func archiveName(annotations map[string]string) string {
	name := annotations[images.AnnotationImageName]
	if name == "" {
		if ref := annotations[ocispec.AnnotationRefName]; strings.ContainsAny(ref, "/:@") {
			name = ref
		}
	}
	if name == "" {
		return ""
	}
	named, err := parseName(name)
	if err != nil {
		return ""
	}
	return named.String()
}

// ownRefs is a content store whose downloads have references of their own. The importer names a download after the
// file in the archive: index.json of one archive must never go on where a killed load of another one stopped.
type ownRefs struct {
	content.Store
	prefix string
}

// Writer implements content.Ingester.
func (o ownRefs) Writer(ctx context.Context, opts ...content.WriterOpt) (content.Writer, error) {
	return o.Store.Writer(ctx, append(opts, func(w *content.WriterOpts) error {
		w.Ref = o.prefix + w.Ref
		return nil
	})...)
}
