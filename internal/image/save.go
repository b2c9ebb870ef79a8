package image

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
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	digest "github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod.dev/monopod/internal/image/imageref"
	"monopod.dev/monopod/internal/image/recipe"
)

// madeAnnotation marks a manifest that was made by a load or a save: no registry has it, so its digest is no name of the image.
const madeAnnotation = "dev.monopod.image.manifest"

// madeManifest is the manifest of an image of which only the configuration and the layers are known.
func madeManifest(config ocispec.Descriptor, layers []ocispec.Descriptor) ([]byte, ocispec.Descriptor, error) {
	config.MediaType = ocispec.MediaTypeImageConfig
	raw, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: config, Layers: append([]ocispec.Descriptor{}, layers...), Annotations: map[string]string{madeAnnotation: "made"},
	})
	return raw, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromBytes(raw), Size: int64(len(raw))}, err
}

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
	ctx = s.scope(ctx)
	ctx, lease, end, err := s.beginTransfer(ctx, "save")
	if err != nil {
		return err
	}
	defer func() { end(false) }()
	var plan savePlan
	for _, ref := range refs {
		name, err := imageref.Parse(ref)
		if err != nil {
			return err
		}
		e := s.index.entry(name)
		if e == nil {
			return fmt.Errorf("saving image %s: it is not here: %w", ref, errdefs.ErrNotFound)
		}
		if slices.ContainsFunc(plan.images, func(other savedImage) bool { return other.id == e.image.ID }) {
			continue
		}
		if err := s.planSave(ctx, lease, e, &plan); err != nil {
			return fmt.Errorf("saving image %s: %w", ref, err)
		}
	}
	if err := plan.write(ctx, w); err != nil {
		return fmt.Errorf("saving images: %w", err)
	}
	return nil
}

// savePlan is what goes into an archive. Everything that can be known before is known.
type savePlan struct {
	images []savedImage
	blobs  []savedBlob
}

type savedImage struct {
	id       string
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

func (p *savePlan) add(b savedBlob) {
	if !slices.ContainsFunc(p.blobs, func(other savedBlob) bool { return other.desc.Digest == b.desc.Digest }) {
		p.blobs = append(p.blobs, b)
	}
}

// planSave adds an image. From now on the lease holds it.
func (s *Store) planSave(ctx context.Context, lease leases.Lease, e *entry, plan *savePlan) error {
	if err := s.leases.AddResource(ctx, lease, leases.Resource{ID: e.image.ID, Type: "content"}); err != nil {
		return err
	}
	target, manifest, err := s.manifestOf(ctx, e)
	if err != nil {
		return err
	}
	config, err := content.ReadBlob(ctx, s.content, manifest.Config)
	if err != nil {
		return fmt.Errorf("configuration %s: %w", manifest.Config.Digest, err)
	}
	var cfg ocispec.Image
	if err := json.Unmarshal(config, &cfg); err != nil {
		return fmt.Errorf("configuration %s: %w: %w", manifest.Config.Digest, err, errdefs.ErrDataLoss)
	}
	dirs, err := s.directories(ctx, e.chains) // again, now that nobody removes them
	if err != nil {
		return err
	}
	out := savedImage{id: e.image.ID, tags: e.image.RepoTags, config: manifest.Config}
	for i, diff := range cfg.RootFS.DiffIDs {
		dir := dirs[len(dirs)-1-i]
		rec, err := recipe.Open(recipeFile(dir))
		if err == nil && rec.Digest != diff {
			err = fmt.Errorf("the record of its tar is of %s: %w", rec.Digest, errdefs.ErrDataLoss)
		}
		if err != nil {
			return s.unsavable(e, i, diff, err)
		}
		desc := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: diff, Size: rec.Size}
		out.layers = append(out.layers, desc)
		plan.add(savedBlob{desc: desc, recipe: rec, dir: dir})
	}
	raw, desc, err := s.savedManifest(ctx, target, manifest, cfg, &out)
	if err != nil {
		return err
	}
	out.manifest = desc
	plan.add(savedBlob{desc: out.config, raw: config})
	plan.add(savedBlob{desc: desc, raw: raw})
	plan.images = append(plan.images, out)
	return nil
}

// manifestOf returns the manifest of the image for this machine.
func (s *Store) manifestOf(ctx context.Context, e *entry) (ocispec.Descriptor, ocispec.Manifest, error) {
	var manifest ocispec.Manifest
	names := s.index.names(e.image.ID)
	slices.Sort(names)
	if len(names) == 0 {
		return ocispec.Descriptor{}, manifest, fmt.Errorf("it was removed just now: %w", errdefs.ErrNotFound)
	}
	rec, err := s.images.Get(ctx, names[0])
	if err != nil {
		return ocispec.Descriptor{}, manifest, err
	}
	manifest, err = images.Manifest(ctx, s.content, rec.Target, s.platform)
	return rec.Target, manifest, err
}

// savedManifest is the manifest that goes into the archive: the image's own when it describes layers that are not compressed, else one
// that does.
func (s *Store) savedManifest(ctx context.Context, target ocispec.Descriptor, manifest ocispec.Manifest, cfg ocispec.Image, img *savedImage) ([]byte, ocispec.Descriptor, error) {
	// An image that does not say what it is for is for every machine, which an index says by saying nothing.
	var platform *ocispec.Platform
	if cfg.OS != "" && cfg.Architecture != "" {
		platform = &cfg.Platform
	}
	same := func(a, b ocispec.Descriptor) bool { return a.Digest == b.Digest }
	if images.IsManifestType(target.MediaType) && slices.EqualFunc(manifest.Layers, img.layers, same) {
		raw, err := content.ReadBlob(ctx, s.content, target)
		if err == nil && isPlain(manifest) {
			return raw, ocispec.Descriptor{MediaType: target.MediaType, Digest: target.Digest, Size: int64(len(raw)), Platform: platform}, nil
		}
		if err != nil && !errdefs.IsNotFound(err) {
			return nil, ocispec.Descriptor{}, err
		}
	}
	img.config = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: img.config.Digest, Size: img.config.Size}
	raw, desc, err := madeManifest(img.config, img.layers)
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
func (s *Store) unsavable(e *entry, i int, diff digest.Digest, err error) error {
	which := fmt.Sprintf("layer %d of %d (%s)", i+1, len(e.chains), diff)
	if errdefs.IsFailedPrecondition(err) {
		return fmt.Errorf("%s: %w", which, err)
	}
	others := s.sharers(e, e.chains[i])
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

// sharers names the other images that have a layer.
func (s *Store) sharers(e *entry, chain string) []string {
	s.index.mu.RLock()
	defer s.index.mu.RUnlock()
	var out []string
	for id, other := range s.index.byID {
		if id != e.image.ID && slices.Contains(other.chains, chain) {
			out = append(out, other.image.label())
		}
	}
	slices.Sort(out)
	return out
}

// label is the name by which a person knows the image.
func (img Image) label() string {
	switch {
	case len(img.RepoTags) > 0:
		return img.RepoTags[0]
	case len(img.RepoDigests) > 0:
		return img.RepoDigests[0]
	}
	return img.ID
}

// dockerImage is an image in a docker-archive's manifest.json.
type dockerImage struct {
	Config   string   `json:"Config"`
	RepoTags []string `json:"RepoTags"`
	Layers   []string `json:"Layers"`
}

func blobPath(d digest.Digest) string {
	return ocispec.ImageBlobsDir + "/" + d.Algorithm().String() + "/" + d.Encoded()
}

// describe makes index.json and manifest.json.
func (p *savePlan) describe() (index, docker []byte, err error) {
	oci := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{}}
	var list []dockerImage
	for _, img := range p.images {
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

// write writes the archive. What describes the rest comes first: a reader then knows which layers it needs.
func (p *savePlan) write(ctx context.Context, w io.Writer) error {
	index, docker, err := p.describe()
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
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
	slices.SortStableFunc(p.blobs, func(a, b savedBlob) int {
		rank := func(b savedBlob) int {
			if b.raw != nil {
				return 0
			}
			return 1
		}
		return rank(a) - rank(b)
	})
	for _, b := range p.blobs {
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
