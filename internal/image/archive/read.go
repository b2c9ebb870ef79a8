package archive

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
	"golang.org/x/sync/semaphore"

	"monopod.dev/monopod/internal/image/decompress"
	"monopod.dev/monopod/internal/image/document"
	"monopod.dev/monopod/internal/image/faults"
	"monopod.dev/monopod/internal/image/imageref"
	"monopod.dev/monopod/internal/image/room"
	"monopod.dev/monopod/internal/kit/ids"
)

// Image is an image of an archive.
type Image struct {
	// Target is its manifest, or an index with it.
	Target ocispec.Descriptor
	// Names are those that the archive gives it; there may be none.
	Names []string
	// Made says that the manifest was made here, or by a Writer: no registry knows its digest.
	Made bool
}

// AllNames are the names that the image is known by when it is loaded: its own; where a registry may have the manifest, those with its digest, so that a
// pod that asks for NAME@DIGEST finds it; and without a name the image's id, which stands for one.
func (img Image) AllNames(id ids.ImageID) []string {
	if len(img.Names) == 0 {
		return []string{string(id)}
	}
	names := slices.Clone(img.Names)
	if img.Made {
		return names
	}
	for _, name := range img.Names {
		named, err := reference.ParseNormalizedNamed(name)
		if err != nil {
			continue
		}
		byDigest, err := reference.WithDigest(reference.TrimNamed(named), img.Target.Digest)
		if err == nil && !slices.Contains(names, byDigest.String()) {
			names = append(names, byDigest.String())
		}
	}
	return names
}

// Reader takes archives apart.
type Reader struct {
	// Content is where the files go.
	Content content.Store
	// Platform is that of the machine.
	Platform platforms.MatchComparer
	Room     room.Room
	// Windows is the memory for zstd streams, which layers use too.
	Windows *semaphore.Weighted
}

// Read stores the files of an archive as blobs, and returns its images for this machine. Nothing holds the blobs but the transfer of ctx.
//
// Errors: InvalidArgument (no such archive, or a damaged one), NotFound (nothing in it for this machine), and those of who sends it.
func (r *Reader) Read(ctx context.Context, from io.Reader) ([]Image, error) {
	begin := bufio.NewReaderSize(faults.Source(from), decompress.PeekSize)
	if head, _ := begin.Peek(8); foreign(head) != "" { // an error comes again below
		return nil, fmt.Errorf("the archive is compressed with %s; decompress it first, or use gzip or zstd: %w", foreign(head), errdefs.ErrInvalidArgument)
	}
	plain, end, err := decompress.Open(ctx, begin, r.Windows)
	if err != nil {
		return nil, damaged(err)
	}
	defer end()
	files, err := readArchiveFiles(ctx, plain, r.keepFile())
	if err != nil {
		return nil, err
	}
	if files.layout != nil {
		return r.layoutImages(ctx, files)
	}
	return r.dockerImages(ctx, files)
}

// keepFile stores the files of one archive as blobs. The references of their downloads are its own: a file of one archive must never
// go on where a killed load of another one stopped.
func (r *Reader) keepFile() keepFile {
	prefix := "load-" + rand.Text() + "-"
	n := 0
	return func(ctx context.Context, name string, want digest.Digest, size int64, data io.Reader) (_ digest.Digest, err error) {
		n++
		ref := fmt.Sprintf("%s%d", prefix, n)
		w, err := r.Content.Writer(ctx, content.WithRef(ref), content.WithDescriptor(ocispec.Descriptor{Digest: want, Size: size}))
		if errdefs.IsAlreadyExists(err) {
			return want, nil
		}
		if err != nil {
			return "", faults.NoRoom(err)
		}
		defer func() {
			w.Close() // committed, or of no use
			if err != nil {
				if aerr := r.Content.Abort(context.WithoutCancel(ctx), ref); aerr != nil && !errdefs.IsNotFound(aerr) {
					err = errors.Join(err, aerr)
				}
			}
		}()
		st, err := w.Status()
		if err != nil {
			return "", err
		}
		// A blob that an earlier load has left, and that is not collected yet, is there from the begin.
		if _, err := io.CopyN(io.Discard, data, st.Offset); err != nil {
			return "", err
		}
		if _, err := io.Copy(stored{&room.Writer{Writer: w, Room: r.Room}}, data); err != nil {
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

// readJSON reads a JSON file of the archive. What an archive says of a size is not believed before.
func (r *Reader) readJSON(ctx context.Context, what string, desc ocispec.Descriptor, to any) error {
	if desc.Size > maxArchiveJSON {
		return fmt.Errorf("%s has %d bytes, at most %d are possible: %w", what, desc.Size, maxArchiveJSON, errdefs.ErrInvalidArgument)
	}
	raw, err := content.ReadBlob(ctx, r.Content, desc)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if err := json.Unmarshal(raw, to); err != nil {
		return fmt.Errorf("%s: %w: %w", what, err, errdefs.ErrInvalidArgument)
	}
	return nil
}

// layoutImages picks the images of an OCI layout that fit this machine.
func (r *Reader) layoutImages(ctx context.Context, files *archiveFiles) ([]Image, error) {
	if err := files.checkLayout(); err != nil {
		return nil, err
	}
	desc, err := files.file("the layout", ocispec.ImageIndexFile)
	if err != nil {
		return nil, err
	}
	var index ocispec.Index
	if err := r.readJSON(ctx, ocispec.ImageIndexFile, desc, &index); err != nil {
		return nil, err
	}
	var out []Image
	var skipped []string
	at := map[digest.Digest]int{}
	for _, m := range index.Manifests {
		if m.Platform != nil && !r.Platform.Match(*m.Platform) {
			skipped = append(skipped, platforms.Format(*m.Platform))
			continue
		}
		if !images.IsManifestType(m.MediaType) && !images.IsIndexType(m.MediaType) {
			continue
		}
		i, ok := at[m.Digest]
		if !ok {
			target := ocispec.Descriptor{MediaType: m.MediaType, Digest: m.Digest, Size: m.Size}
			made, err := r.checkTree(ctx, files, ocispec.ImageIndexFile, target, 0)
			if err != nil {
				return nil, err
			}
			i = len(out)
			at[m.Digest] = i
			out = append(out, Image{Target: target, Made: made})
		}
		if name := archiveName(m.Annotations); name != "" && !slices.Contains(out[i].Names, name) {
			out[i].Names = append(out[i].Names, name)
		}
	}
	return out, nothingFor(out, skipped)
}

func nothingFor(found []Image, skipped []string) error {
	if len(found) > 0 {
		return nil
	}
	return fmt.Errorf("the archive has no image for this machine (%s), it has %v: %w",
		platforms.Format(platforms.DefaultSpec()), skipped, errdefs.ErrNotFound)
}

// checkTree sees that what a document names is in the archive, and as large as it says, before anybody reads it. Of an index the
// archive may lack what is for other machines. made says that the document was made by a load or a save.
func (r *Reader) checkTree(ctx context.Context, files *archiveFiles, in string, desc ocispec.Descriptor, depth int) (made bool, err error) {
	if depth > document.MaxIndexes {
		return false, fmt.Errorf("%s: indexes within indexes, more than %d deep: %w", in, document.MaxIndexes, errdefs.ErrInvalidArgument)
	}
	if err := files.blob(in, desc); err != nil {
		return false, err
	}
	what := "manifest " + desc.Digest.String()
	if desc.Size > maxArchiveJSON {
		return false, fmt.Errorf("%s has %d bytes, at most %d are possible: %w", what, desc.Size, maxArchiveJSON, errdefs.ErrInvalidArgument)
	}
	if err := document.CheckStored(ctx, r.Content, desc); err != nil {
		return false, err
	}
	if images.IsIndexType(desc.MediaType) {
		var index ocispec.Index
		if err := r.readJSON(ctx, what, desc, &index); err != nil {
			return false, err
		}
		for _, m := range index.Manifests {
			if m.Platform != nil && !r.Platform.Match(*m.Platform) {
				continue
			}
			if _, err := r.checkTree(ctx, files, what, m, depth+1); err != nil {
				return false, err
			}
		}
		return false, nil
	}
	var manifest ocispec.Manifest
	if err := r.readJSON(ctx, what, desc, &manifest); err != nil {
		return false, err
	}
	for _, d := range append([]ocispec.Descriptor{manifest.Config}, manifest.Layers...) {
		if err := files.blob(what, d); err != nil {
			return false, err
		}
	}
	if images.IsConfigType(manifest.Config.MediaType) {
		if _, err := r.checkConfigOf(ctx, what, manifest.Config, len(manifest.Layers)); err != nil {
			return false, err
		}
	}
	return document.IsMade(manifest), nil
}

// checkConfigOf reads an image's configuration, and sees that it tells of as many layers as there are.
func (r *Reader) checkConfigOf(ctx context.Context, in string, desc ocispec.Descriptor, layers int) (cfg ocispec.Image, err error) {
	if err := r.readJSON(ctx, "configuration "+desc.Digest.String(), desc, &cfg); err != nil {
		return cfg, err
	}
	if n := len(cfg.RootFS.DiffIDs); n != layers {
		return cfg, fmt.Errorf("%s has %d layers, the configuration %s tells of %d: %w", in, layers, desc.Digest, n, errdefs.ErrInvalidArgument)
	}
	return cfg, nil
}

// dockerImages makes manifests for the images of a docker-archive.
func (r *Reader) dockerImages(ctx context.Context, files *archiveFiles) ([]Image, error) {
	list, err := files.dockerImages()
	if err != nil {
		return nil, err
	}
	var out []Image
	var skipped []string
	for _, img := range list {
		config, err := files.file(dockerManifestFile, img.Config)
		if err != nil {
			return nil, err
		}
		cfg, err := r.checkConfigOf(ctx, dockerManifestFile, config, len(img.Layers))
		if err != nil {
			return nil, err
		}
		if cfg.OS != "" && cfg.Architecture != "" && !r.Platform.Match(platforms.Normalize(cfg.Platform)) {
			skipped = append(skipped, platforms.Format(cfg.Platform))
			continue
		}
		var layers []ocispec.Descriptor
		for _, l := range img.Layers {
			desc, err := files.file(dockerManifestFile, l)
			if err != nil {
				return nil, err
			}
			if desc.MediaType, err = r.layerType(ctx, desc); err != nil {
				return nil, fmt.Errorf("layer %s: %w", l, err)
			}
			layers = append(layers, desc)
		}
		n := Image{Made: true}
		if n.Target, err = r.keepManifest(ctx, config, layers); err != nil {
			return nil, err
		}
		for _, tag := range img.RepoTags {
			named, err := imageref.ParseName(tag)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", dockerManifestFile, err)
			}
			n.Names = append(n.Names, named.String())
		}
		i := slices.IndexFunc(out, func(o Image) bool { return o.Target.Digest == n.Target.Digest })
		if i >= 0 {
			out[i].Names = append(out[i].Names, n.Names...)
			continue
		}
		out = append(out, n)
	}
	return out, nothingFor(out, skipped)
}

// keepManifest stores a manifest that the archive does not have.
func (r *Reader) keepManifest(ctx context.Context, config ocispec.Descriptor, layers []ocispec.Descriptor) (ocispec.Descriptor, error) {
	raw, desc, err := document.MakeManifest(config, layers)
	if err != nil {
		return desc, err
	}
	return desc, content.WriteBlob(ctx, r.Content, "load-manifest-"+desc.Digest.String(), bytes.NewReader(raw), desc)
}

// layerType says how a layer of a docker-archive is compressed; its name does not.
func (r *Reader) layerType(ctx context.Context, desc ocispec.Descriptor) (string, error) {
	ra, err := r.Content.ReaderAt(ctx, desc)
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
