package image

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/distribution/reference"
	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod.dev/monopod/internal/image/decompress"
	"monopod.dev/monopod/internal/image/faults"
	"monopod.dev/monopod/internal/image/imageref"
	"monopod.dev/monopod/internal/image/room"
	"monopod.dev/monopod/internal/kit/failpoint"
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
	ID string
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
	ctx = s.scope(ctx)
	ctx, lease, end, err := s.beginTransfer(ctx, "archive")
	if err != nil {
		return nil, err
	}
	defer func() { end(false) }() // an archive is read anew anyway: nothing to resume
	defer func() { err = faults.NoRoom(err) }()

	namings, err := s.readArchive(ctx, req.Archive)
	if err != nil {
		return nil, fmt.Errorf("loading an image archive: %w", faults.Legible(err))
	}
	if err := failpoint.Hit("image/load/read"); err != nil {
		return nil, err
	}
	if name != nil {
		if len(namings) > 1 {
			return nil, fmt.Errorf("loading an image archive: it has %d images, so they cannot all be %s; leave the name out: %w",
				len(namings), name, errdefs.ErrInvalidArgument)
		}
		namings[0].names = []string{name.String()}
	}
	for i := range namings {
		n := &namings[i]
		what := "image " + strings.Join(n.names, ", ")
		if len(n.names) == 0 {
			what = "an image without a name"
		}
		if err := s.unpack(ctx, nil, n.target, nil); err != nil {
			return nil, fmt.Errorf("loading %s: %w", what, err)
		}
		e, err := s.inspect(ctx, n.target)
		if err != nil {
			return nil, fmt.Errorf("loading %s: %w", what, err)
		}
		loaded = append(loaded, LoadedImage{ID: e.image.ID, Names: slices.Clone(n.names)})
		n.addDigests(e.image.ID)
	}
	if err := s.publish(ctx, lease, namings...); err != nil {
		return nil, err
	}
	for _, l := range loaded {
		s.log.InfoContext(ctx, "image loaded from an archive", "id", l.ID, "names", l.Names)
	}
	return loaded, nil
}

// addDigests gives a loaded image the rest of its names.
func (n *naming) addDigests(id string) {
	if len(n.names) == 0 {
		n.names = []string{id}
		return
	}
	if n.made {
		return
	}
	for _, name := range slices.Clone(n.names) {
		named, err := reference.ParseNormalizedNamed(name)
		if err != nil {
			continue
		}
		byDigest, err := reference.WithDigest(reference.TrimNamed(named), n.target.Digest)
		if err == nil && !slices.Contains(n.names, byDigest.String()) {
			n.names = append(n.names, byDigest.String())
		}
	}
}

// readArchive stores the files of an archive and returns its images for this machine, each with all of its names.
func (s *Store) readArchive(ctx context.Context, r io.Reader) ([]naming, error) {
	begin := bufio.NewReaderSize(faults.Source(r), decompress.PeekSize)
	if head, _ := begin.Peek(8); foreign(head) != "" { // an error comes again below
		return nil, fmt.Errorf("the archive is compressed with %s; decompress it first, or use gzip or zstd: %w", foreign(head), errdefs.ErrInvalidArgument)
	}
	plain, end, err := decompress.Open(ctx, begin, s.limits.windows)
	if err != nil {
		return nil, damaged(err)
	}
	defer end()
	files, err := readArchiveFiles(ctx, plain, s.keepFile())
	if err != nil {
		return nil, err
	}
	if files.layout != nil {
		return s.layoutImages(ctx, files)
	}
	return s.dockerImages(ctx, files)
}

// keepFile stores the files of one archive as blobs. The references of their downloads are its own: a file of one archive must never
// go on where a killed load of another one stopped.
func (s *Store) keepFile() keepFile {
	prefix := "load-" + rand.Text() + "-"
	n := 0
	return func(ctx context.Context, name string, want digest.Digest, size int64, r io.Reader) (_ digest.Digest, err error) {
		n++
		ref := fmt.Sprintf("%s%d", prefix, n)
		w, err := s.content.Writer(ctx, content.WithRef(ref), content.WithDescriptor(ocispec.Descriptor{Digest: want, Size: size}))
		if errdefs.IsAlreadyExists(err) {
			return want, nil
		}
		if err != nil {
			return "", faults.NoRoom(err)
		}
		defer func() {
			w.Close() // committed, or of no use
			if err != nil {
				if aerr := s.content.Abort(context.WithoutCancel(ctx), ref); aerr != nil && !errdefs.IsNotFound(aerr) {
					err = errors.Join(err, aerr)
				}
			}
		}()
		st, err := w.Status()
		if err != nil {
			return "", err
		}
		// A blob that an earlier load has left, and that is not collected yet, is there from the begin.
		if _, err := io.CopyN(io.Discard, r, st.Offset); err != nil {
			return "", err
		}
		if _, err := io.Copy(stored{&room.Writer{Writer: w, Room: s.room}}, r); err != nil {
			return "", faults.NoRoom(err)
		}
		has := w.Digest()
		if want != "" && has != want {
			if want.Algorithm() != digest.Canonical {
				return "", fmt.Errorf("digests by %s are not supported, only %s: %w", want.Algorithm(), digest.Canonical, errdefs.ErrInvalidArgument)
			}
			return "", fmt.Errorf("the digest of its content is %s, not what its name says: %w", has, errdefs.ErrInvalidArgument)
		}
		if err := w.Commit(ctx, size, has); err != nil && !errdefs.IsAlreadyExists(err) {
			return "", faults.NoRoom(&storeError{err})
		}
		return has, nil
	}
}

// stored marks the errors of the store, so that a disk that fails is not taken for an archive that is damaged.
type stored struct{ io.Writer }

type storeError struct{ err error }

func (e *storeError) Error() string { return "storing it: " + e.err.Error() }
func (e *storeError) Unwrap() error { return e.err }

func (s stored) Write(p []byte) (int, error) {
	n, err := s.Writer.Write(p)
	if err != nil {
		err = &storeError{err}
	}
	return n, err
}

// document reads a JSON file of the archive. What an archive says of a size is not believed before.
func (s *Store) document(ctx context.Context, what string, desc ocispec.Descriptor, to any) error {
	if desc.Size > maxArchiveJSON {
		return fmt.Errorf("%s has %d bytes, at most %d are possible: %w", what, desc.Size, maxArchiveJSON, errdefs.ErrInvalidArgument)
	}
	raw, err := content.ReadBlob(ctx, s.content, desc)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if err := json.Unmarshal(raw, to); err != nil {
		return fmt.Errorf("%s: %w: %w", what, err, errdefs.ErrInvalidArgument)
	}
	return nil
}

// layoutImages picks the images of an OCI layout that fit this machine.
func (s *Store) layoutImages(ctx context.Context, files *archiveFiles) ([]naming, error) {
	if err := files.checkLayout(); err != nil {
		return nil, err
	}
	desc, err := files.file("the layout", ocispec.ImageIndexFile)
	if err != nil {
		return nil, err
	}
	var index ocispec.Index
	if err := s.document(ctx, ocispec.ImageIndexFile, desc, &index); err != nil {
		return nil, err
	}
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
			target := ocispec.Descriptor{MediaType: m.MediaType, Digest: m.Digest, Size: m.Size}
			made, err := s.checkTree(ctx, files, ocispec.ImageIndexFile, target, 0)
			if err != nil {
				return nil, err
			}
			i = len(out)
			at[m.Digest] = i
			out = append(out, naming{target: target, made: made})
		}
		if name := archiveName(m.Annotations); name != "" && !slices.Contains(out[i].names, name) {
			out[i].names = append(out[i].names, name)
		}
	}
	return out, nothingFor(out, skipped)
}

func nothingFor(found []naming, skipped []string) error {
	if len(found) > 0 {
		return nil
	}
	return fmt.Errorf("the archive has no image for this machine (%s), it has %v: %w",
		platforms.Format(platforms.DefaultSpec()), skipped, errdefs.ErrNotFound)
}

// checkTree sees that what a document names is in the archive, and as large as it says, before anybody reads it. Of an index the
// archive may lack what is for other machines. made says that the document was made by a load or a save.
func (s *Store) checkTree(ctx context.Context, files *archiveFiles, document string, desc ocispec.Descriptor, depth int) (made bool, err error) {
	if depth > maxIndexes {
		return false, fmt.Errorf("%s: indexes within indexes, more than %d deep: %w", document, maxIndexes, errdefs.ErrInvalidArgument)
	}
	if err := files.blob(document, desc); err != nil {
		return false, err
	}
	what := "manifest " + desc.Digest.String()
	if desc.Size > maxArchiveJSON {
		return false, fmt.Errorf("%s has %d bytes, at most %d are possible: %w", what, desc.Size, maxArchiveJSON, errdefs.ErrInvalidArgument)
	}
	if _, err := s.checkStored(ctx, desc); err != nil {
		return false, err
	}
	if images.IsIndexType(desc.MediaType) {
		var index ocispec.Index
		if err := s.document(ctx, what, desc, &index); err != nil {
			return false, err
		}
		for _, m := range index.Manifests {
			if m.Platform != nil && !s.platform.Match(*m.Platform) {
				continue
			}
			if _, err := s.checkTree(ctx, files, what, m, depth+1); err != nil {
				return false, err
			}
		}
		return false, nil
	}
	var manifest ocispec.Manifest
	if err := s.document(ctx, what, desc, &manifest); err != nil {
		return false, err
	}
	for _, d := range append([]ocispec.Descriptor{manifest.Config}, manifest.Layers...) {
		if err := files.blob(what, d); err != nil {
			return false, err
		}
	}
	if images.IsConfigType(manifest.Config.MediaType) {
		if _, err := s.checkConfigOf(ctx, what, manifest.Config, len(manifest.Layers)); err != nil {
			return false, err
		}
	}
	return manifest.Annotations[madeAnnotation] != "", nil
}

// checkConfigOf reads an image's configuration, and sees that it tells of as many layers as there are.
func (s *Store) checkConfigOf(ctx context.Context, document string, desc ocispec.Descriptor, layers int) (cfg ocispec.Image, err error) {
	if err := s.document(ctx, "configuration "+desc.Digest.String(), desc, &cfg); err != nil {
		return cfg, err
	}
	if n := len(cfg.RootFS.DiffIDs); n != layers {
		return cfg, fmt.Errorf("%s has %d layers, the configuration %s tells of %d: %w", document, layers, desc.Digest, n, errdefs.ErrInvalidArgument)
	}
	return cfg, nil
}

// dockerImages makes manifests for the images of a docker-archive.
func (s *Store) dockerImages(ctx context.Context, files *archiveFiles) ([]naming, error) {
	list, err := files.dockerImages()
	if err != nil {
		return nil, err
	}
	var out []naming
	var skipped []string
	for _, img := range list {
		config, err := files.file(dockerManifestFile, img.Config)
		if err != nil {
			return nil, err
		}
		cfg, err := s.checkConfigOf(ctx, dockerManifestFile, config, len(img.Layers))
		if err != nil {
			return nil, err
		}
		if cfg.OS != "" && cfg.Architecture != "" && !s.platform.Match(platforms.Normalize(cfg.Platform)) {
			skipped = append(skipped, platforms.Format(cfg.Platform))
			continue
		}
		var layers []ocispec.Descriptor
		for _, l := range img.Layers {
			desc, err := files.file(dockerManifestFile, l)
			if err != nil {
				return nil, err
			}
			if desc.MediaType, err = s.layerType(ctx, desc); err != nil {
				return nil, fmt.Errorf("layer %s: %w", l, err)
			}
			layers = append(layers, desc)
		}
		n := naming{made: true}
		if n.target, err = s.keepManifest(ctx, config, layers); err != nil {
			return nil, err
		}
		for _, tag := range img.RepoTags {
			named, err := imageref.ParseName(tag)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", dockerManifestFile, err)
			}
			n.names = append(n.names, named.String())
		}
		i := slices.IndexFunc(out, func(o naming) bool { return o.target.Digest == n.target.Digest })
		if i >= 0 {
			out[i].names = append(out[i].names, n.names...)
			continue
		}
		out = append(out, n)
	}
	return out, nothingFor(out, skipped)
}

// keepManifest stores a manifest that the archive does not have.
func (s *Store) keepManifest(ctx context.Context, config ocispec.Descriptor, layers []ocispec.Descriptor) (ocispec.Descriptor, error) {
	raw, desc, err := madeManifest(config, layers)
	if err != nil {
		return desc, err
	}
	return desc, content.WriteBlob(ctx, s.content, "load-manifest-"+desc.Digest.String(), bytes.NewReader(raw), desc)
}

// layerType says how a layer of a docker-archive is compressed; its name does not.
func (s *Store) layerType(ctx context.Context, desc ocispec.Descriptor) (string, error) {
	ra, err := s.content.ReaderAt(ctx, desc)
	if err != nil {
		return "", err
	}
	defer ra.Close()
	head := make([]byte, 10)
	n, err := ra.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	switch compression.DetectCompression(head[:n]) {
	case compression.Uncompressed:
		return ocispec.MediaTypeImageLayer, nil
	case compression.Gzip:
		return ocispec.MediaTypeImageLayerGzip, nil
	case compression.Zstd:
		return ocispec.MediaTypeImageLayerZstd, nil
	}
	return "", fmt.Errorf("it is compressed by a method that is not known: %w", errdefs.ErrInvalidArgument)
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
	named, err := imageref.ParseName(name)
	if err != nil {
		return ""
	}
	return named.String()
}
