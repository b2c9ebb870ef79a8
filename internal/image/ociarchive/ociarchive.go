// Package ociarchive writes container images from files in memory: an OCI image layout, as one tar, that any tool which
// knows OCI can load. It is pure: the same input gives the same bytes, and nothing but the given writer is touched.
package ociarchive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	_ "crypto/sha256" // what the digests are made with
	"encoding/json"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	digest "github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// nameAnnotation holds an image's full name in an archive's index; the OCI's own annotation holds the tag only.
const nameAnnotation = "io.containerd.image.name"

// File is one entry of a layer. Parent directories that no entry names are made, with mode 0755.
type File struct {
	// Path is slash-separated; a leading slash does not matter.
	Path string
	// Mode holds permission bits, setuid, setgid and sticky as in chmod(2); 0 is 0644 for a file, 0755 for a
	// directory.
	Mode     int64
	UID, GID int
	// Data is a regular file's content.
	Data []byte
	// Symlink makes a symbolic link with this target; Hardlink a hard link to this path of the same layer; Dir a
	// directory. At most one of them is set.
	Symlink  string
	Hardlink string
	Dir      bool
}

// Layer is a list of files, applied in order.
type Layer []File

// Image is what to build.
type Image struct {
	// Name is the full name, with tag: localhost/monopod/hello:latest.
	Name string
	// Architecture and OS in Go's terms; empty: amd64 and linux.
	Architecture, OS string
	// Created goes into the configuration and is the files' time; the zero time is 1970.
	Created time.Time
	Config  ocispec.ImageConfig
	Layers  []Layer
	// Uncompressed leaves the layers as plain tars.
	Uncompressed bool
}

// Built is an image as blobs.
type Built struct {
	Name string
	// Manifest describes the image's manifest, Config its configuration; the blobs hold both and the layers.
	Manifest, Config ocispec.Descriptor
	Layers           []ocispec.Descriptor
	Blobs            map[digest.Digest][]byte
}

// Build makes the blobs of an image.
func Build(img Image) (*Built, error) {
	b := &Built{Name: img.Name, Blobs: map[digest.Digest][]byte{}}
	created := img.Created
	if created.IsZero() {
		created = time.Unix(0, 0).UTC()
	}
	cfg := ocispec.Image{
		Created:  &created,
		Platform: ocispec.Platform{Architecture: orElse(img.Architecture, "amd64"), OS: orElse(img.OS, "linux")},
		Config:   img.Config,
		RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{}},
	}
	for i, layer := range img.Layers {
		plain, err := tarLayer(layer, created)
		if err != nil {
			return nil, fmt.Errorf("layer %d of image %s: %w", i, img.Name, err)
		}
		cfg.RootFS.DiffIDs = append(cfg.RootFS.DiffIDs, digest.FromBytes(plain))
		mediaType, blob := ocispec.MediaTypeImageLayer, plain
		if !img.Uncompressed {
			if blob, err = gzipped(plain); err != nil {
				return nil, fmt.Errorf("layer %d of image %s: %w", i, img.Name, err)
			}
			mediaType = ocispec.MediaTypeImageLayerGzip
		}
		b.Layers = append(b.Layers, b.add(mediaType, blob))
	}
	return b, b.describe(cfg)
}

// describe adds the configuration and the manifest.
func (b *Built) describe(cfg ocispec.Image) (err error) {
	if b.Config, err = b.addJSON(ocispec.MediaTypeImageConfig, cfg); err != nil {
		return err
	}
	b.Manifest, err = b.addJSON(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageManifest,
		Config:    b.Config,
		Layers:    append([]ocispec.Descriptor{}, b.Layers...),
	})
	b.Manifest.Platform = &ocispec.Platform{Architecture: cfg.Architecture, OS: cfg.OS}
	return err
}

func (b *Built) add(mediaType string, blob []byte) ocispec.Descriptor {
	d := digest.FromBytes(blob)
	b.Blobs[d] = blob
	return ocispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(blob))}
}

func (b *Built) addJSON(mediaType string, v any) (ocispec.Descriptor, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("image %s: %w", b.Name, err)
	}
	return b.add(mediaType, raw), nil
}

// Write writes an OCI image layout with these images as a tar.
func Write(w io.Writer, imgs ...*Built) error {
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	t := tarWriter{tw: tar.NewWriter(w), created: time.Unix(0, 0).UTC(), seen: map[string]bool{}}
	if err := t.add(File{Path: ocispec.ImageLayoutFile, Data: []byte(`{"imageLayoutVersion":"` + ocispec.ImageLayoutVersion + `"}`)}); err != nil {
		return err
	}
	written := map[digest.Digest]bool{}
	for _, b := range imgs {
		desc := b.Manifest
		if b.Name != "" {
			desc.Annotations = map[string]string{nameAnnotation: b.Name, ocispec.AnnotationRefName: tagOf(b.Name)}
		}
		index.Manifests = append(index.Manifests, desc)
		for _, d := range append([]ocispec.Descriptor{b.Manifest, b.Config}, b.Layers...) {
			if written[d.Digest] {
				continue
			}
			written[d.Digest] = true
			err := t.add(File{Path: path.Join(ocispec.ImageBlobsDir, d.Digest.Algorithm().String(), d.Digest.Encoded()), Data: b.Blobs[d.Digest]})
			if err != nil {
				return err
			}
		}
	}
	raw, err := json.Marshal(index)
	if err != nil {
		return err
	}
	if err := t.add(File{Path: ocispec.ImageIndexFile, Data: raw}); err != nil {
		return err
	}
	return t.tw.Close()
}

// tagOf returns the tag of a full name, or the name when it has none.
func tagOf(name string) string {
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		return name[i+1:]
	}
	return name
}

func tarLayer(layer Layer, created time.Time) ([]byte, error) {
	var buf bytes.Buffer
	t := tarWriter{tw: tar.NewWriter(&buf), created: created, seen: map[string]bool{}}
	for _, f := range layer {
		if err := t.add(f); err != nil {
			return nil, err
		}
	}
	if err := t.tw.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

type tarWriter struct {
	tw      *tar.Writer
	created time.Time
	seen    map[string]bool // directories that have been written
}

func (t *tarWriter) add(f File) error {
	name := strings.TrimPrefix(path.Clean("/"+f.Path), "/")
	if name == "" {
		return fmt.Errorf("file %q: the path is empty", f.Path)
	}
	if dir := path.Dir(name); dir != "." && !t.seen[dir] {
		if err := t.add(File{Path: dir, Dir: true}); err != nil {
			return err
		}
	}
	h := tar.Header{Name: name, Mode: f.Mode, Uid: f.UID, Gid: f.GID, ModTime: t.created, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
	switch {
	case f.Dir:
		if t.seen[name] {
			return nil
		}
		t.seen[name] = true
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		if h.Mode == 0 {
			h.Mode = 0o755
		}
	case f.Symlink != "":
		h.Typeflag, h.Linkname = tar.TypeSymlink, f.Symlink
	case f.Hardlink != "":
		h.Typeflag, h.Linkname = tar.TypeLink, strings.TrimPrefix(path.Clean("/"+f.Hardlink), "/")
	default:
		h.Size = int64(len(f.Data))
	}
	if h.Mode == 0 {
		h.Mode = 0o644
	}
	if err := t.tw.WriteHeader(&h); err != nil {
		return fmt.Errorf("file %q: %w", f.Path, err)
	}
	_, err := t.tw.Write(f.Data[:h.Size])
	return err
}

func gzipped(plain []byte) ([]byte, error) {
	var buf bytes.Buffer
	zw := gzip.NewWriter(&buf)
	if _, err := zw.Write(plain); err != nil {
		return nil, err
	}
	if err := zw.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
