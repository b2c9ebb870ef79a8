package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	specs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod.dev/monopod/internal/image/document"
	"monopod.dev/monopod/internal/image/recipe"
	"monopod.dev/monopod/internal/kit/ids"
)

// Layers is what a Writer asks a store of its layers.
type Layers interface {
	// Directories returns the directories of unpacked layers, by their chain ids, which are given lowest first: the topmost first.
	Directories(ctx context.Context, chains []string) ([]string, error)
	// Sharers names the images beside imageID that have a layer, by its chain id.
	Sharers(imageID ids.ImageID, chain string) []string
}

// Stored is an image of a store.
type Stored struct {
	ID   ids.ImageID
	Tags []string
	// Target is what its names point to, and Manifest its manifest for this machine.
	Target   ocispec.Descriptor
	Manifest ocispec.Manifest
}

// Writer gathers images, and writes them as one archive. Everything that can be known before is known before the first byte.
type Writer struct {
	// Content has the documents.
	Content content.Provider
	Layers  Layers

	images []savedImage
	blobs  []savedBlob
}

type savedImage struct {
	tags     []string
	manifest ocispec.Descriptor
	config   ocispec.Descriptor
	layers   []ocispec.Descriptor
}

// savedBlob is a document, or the layer that a recipe makes of a directory.
type savedBlob struct {
	desc   ocispec.Descriptor
	raw    []byte
	recipe *recipe.Recipe
	dir    string
}

func (w *Writer) add(b savedBlob) {
	if !slices.ContainsFunc(w.blobs, func(other savedBlob) bool { return other.desc.Digest == b.desc.Digest }) {
		w.blobs = append(w.blobs, b)
	}
}

// Add adds an image, which stays in the store until it is written. Errors: FailedPrecondition (a layer cannot be written again), DataLoss (what the store has
// of it is damaged).
func (w *Writer) Add(ctx context.Context, img Stored) error {
	config, err := content.ReadBlob(ctx, w.Content, img.Manifest.Config)
	if err != nil {
		return fmt.Errorf("configuration %s: %w", img.Manifest.Config.Digest, err)
	}
	var cfg ocispec.Image
	if err := json.Unmarshal(config, &cfg); err != nil {
		return fmt.Errorf("configuration %s: %w: %w", img.Manifest.Config.Digest, err, errdefs.ErrDataLoss)
	}
	chains := document.Chains(cfg)
	dirs, err := w.Layers.Directories(ctx, chains)
	if err != nil {
		return err
	}
	out := savedImage{tags: img.Tags, config: img.Manifest.Config}
	for i, diff := range cfg.RootFS.DiffIDs {
		dir := dirs[len(dirs)-1-i]
		rec, err := recipe.Open(recipe.Path(dir))
		if err == nil && rec.Digest != diff {
			err = fmt.Errorf("the record of its tar is of %s: %w", rec.Digest, errdefs.ErrDataLoss)
		}
		if err != nil {
			which := fmt.Sprintf("layer %d of %d (%s)", i+1, len(chains), diff)
			return unsavable(which, w.Layers.Sharers(img.ID, chains[i]), err)
		}
		desc := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: diff, Size: rec.Size}
		out.layers = append(out.layers, desc)
		w.add(savedBlob{desc: desc, recipe: rec, dir: dir})
	}
	raw, desc, err := w.manifest(ctx, img, cfg, &out)
	if err != nil {
		return err
	}
	out.manifest = desc
	w.add(savedBlob{desc: out.config, raw: config})
	w.add(savedBlob{desc: desc, raw: raw})
	w.images = append(w.images, out)
	return nil
}

// manifest is the manifest that goes into the archive: the image's own when it describes layers that are not compressed, else one
// that does.
func (w *Writer) manifest(ctx context.Context, img Stored, cfg ocispec.Image, out *savedImage) ([]byte, ocispec.Descriptor, error) {
	// An image that does not say what it is for is for every machine, which an index says by saying nothing.
	var platform *ocispec.Platform
	if cfg.OS != "" && cfg.Architecture != "" {
		platform = &cfg.Platform
	}
	same := func(a, b ocispec.Descriptor) bool { return a.Digest == b.Digest }
	if images.IsManifestType(img.Target.MediaType) && slices.EqualFunc(img.Manifest.Layers, out.layers, same) {
		raw, err := content.ReadBlob(ctx, w.Content, img.Target)
		if err == nil && isPlain(img.Manifest) {
			return raw, ocispec.Descriptor{MediaType: img.Target.MediaType, Digest: img.Target.Digest, Size: int64(len(raw)), Platform: platform}, nil
		}
		if err != nil && !errdefs.IsNotFound(err) {
			return nil, ocispec.Descriptor{}, err
		}
	}
	out.config = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: out.config.Digest, Size: out.config.Size}
	raw, desc, err := document.MakeManifest(out.config, out.layers)
	desc.Platform = platform
	return raw, desc, err
}

// isPlain says that the manifest's layers claim to be plain tars.
func isPlain(m ocispec.Manifest) bool {
	return !slices.ContainsFunc(m.Layers, func(l ocispec.Descriptor) bool {
		return l.MediaType != ocispec.MediaTypeImageLayer && l.MediaType != images.MediaTypeDockerSchema2Layer
	})
}

// unsavable says why a layer cannot be saved, and what to do.
func unsavable(which string, others []string, err error) error {
	if errdefs.IsFailedPrecondition(err) {
		return fmt.Errorf("%s: %w", which, err)
	}
	remedy := "remove the image and pull or load it again"
	if len(others) > 0 {
		remedy = fmt.Sprintf("remove the image and those that share the layer (%s), and pull or load them again", strings.Join(others, ", "))
	}
	remedy += "; containers that use it keep the old layer until they are removed"
	if errdefs.IsNotFound(err) {
		return fmt.Errorf("%s was unpacked by a version of Monopod that kept no record of its tar, so that it cannot be written again: %s: %w",
			which, remedy, errdefs.ErrFailedPrecondition)
	}
	return fmt.Errorf("%s: %w; %s", which, err, remedy)
}

// describe makes index.json and manifest.json.
func (w *Writer) describe() (index, docker []byte, err error) {
	oci := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{}}
	var list []dockerImage
	for _, img := range w.images {
		entry := dockerImage{Config: blobPath(img.config.Digest), Layers: []string{}}
		for _, l := range img.layers {
			entry.Layers = append(entry.Layers, blobPath(l.Digest))
		}
		for _, tag := range img.tags {
			desc := img.manifest
			desc.Annotations = map[string]string{images.AnnotationImageName: tag, ocispec.AnnotationRefName: bareTag(tag)}
			oci.Manifests = append(oci.Manifests, desc)
			entry.RepoTags = append(entry.RepoTags, familiar(tag))
		}
		if len(img.tags) == 0 {
			oci.Manifests = append(oci.Manifests, img.manifest)
		}
		list = append(list, entry)
	}
	if index, err = json.Marshal(oci); err != nil {
		return nil, nil, err
	}
	docker, err = json.Marshal(list)
	return index, docker, err
}

// familiar is the name as docker writes it into its archives: busybox:latest.
func familiar(name string) string {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return name
	}
	return reference.FamiliarString(named)
}

func bareTag(name string) string {
	if named, err := reference.ParseNormalizedNamed(name); err == nil {
		if tagged, ok := named.(reference.Tagged); ok {
			return tagged.Tag()
		}
	}
	return name
}

// Write writes the archive. Errors: DataLoss (a layer is not what it was unpacked from), which may come late: what is written is of no use then. What describes the rest comes first: a reader then knows which layers it needs.
func (w *Writer) Write(ctx context.Context, to io.Writer) error {
	index, docker, err := w.describe()
	if err != nil {
		return err
	}
	tw := tar.NewWriter(to)
	layout := []byte(`{"imageLayoutVersion":"` + ocispec.ImageLayoutVersion + `"}`)
	for _, f := range []struct {
		name string
		data []byte
	}{{ocispec.ImageLayoutFile, layout}, {ocispec.ImageIndexFile, index}, {dockerManifestFile, docker}} {
		if err := writeFile(tw, f.name, int64(len(f.data)), func(w io.Writer) error { _, err := w.Write(f.data); return err }); err != nil {
			return err
		}
	}
	for _, dir := range []string{"blobs/", "blobs/sha256/"} {
		if err := tw.WriteHeader(&tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755, ModTime: time.Unix(0, 0)}); err != nil {
			return err
		}
	}
	// Documents before layers.
	slices.SortStableFunc(w.blobs, func(a, b savedBlob) int {
		rank := func(b savedBlob) int {
			if b.raw != nil {
				return 0
			}
			return 1
		}
		return rank(a) - rank(b)
	})
	for _, b := range w.blobs {
		err := writeFile(tw, blobPath(b.desc.Digest), b.desc.Size, func(w io.Writer) error {
			if b.raw != nil {
				_, err := io.Copy(w, bytes.NewReader(b.raw))
				return err
			}
			return b.recipe.WriteTar(ctx, w, b.dir)
		})
		if errors.Is(err, tar.ErrWriteTooLong) {
			err = fmt.Errorf("it is longer than it was: %w", errdefs.ErrDataLoss)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", b.desc.MediaType, b.desc.Digest, err)
		}
	}
	return tw.Close()
}

func writeFile(tw *tar.Writer, name string, size int64, data func(io.Writer) error) error {
	h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: size, ModTime: time.Unix(0, 0)}
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	return data(tw)
}
