package ociarchive

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"testing"

	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

var sample = Image{
	Name:   "localhost:5000/a/b:v1",
	Config: ocispec.ImageConfig{Entrypoint: []string{"/x"}},
	Layers: []Layer{
		{
			{Path: "/usr/bin/x", Data: []byte("program"), Mode: 0o4755, UID: 1, GID: 2},
			{Path: "usr/bin/y", Hardlink: "/usr/bin/x"},
			{Path: "usr/bin/z", Symlink: "../bin/x"},
			{Path: "usr", Dir: true, Mode: 0o700}, // too late: it was made for usr/bin
			{Path: "tmp", Dir: true, Mode: 0o1777},
		},
		{{Path: "tmp/f"}},
	},
}

func files(t *testing.T, raw []byte) map[string]*tar.Header {
	t.Helper()
	out := map[string]*tar.Header{}
	for tr := tar.NewReader(bytes.NewReader(raw)); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if out[h.Name] != nil {
			t.Errorf("%s is there twice", h.Name)
		}
		out[h.Name] = h
	}
}

func TestLayer(t *testing.T) {
	img := sample
	img.Uncompressed = true
	b, err := Build(img)
	if err != nil {
		t.Fatal(err)
	}
	got := files(t, b.Blobs[b.Layers[0].Digest])
	for name, want := range map[string]tar.Header{
		"usr/":      {Typeflag: tar.TypeDir, Mode: 0o755},
		"usr/bin/":  {Typeflag: tar.TypeDir, Mode: 0o755},
		"usr/bin/x": {Typeflag: tar.TypeReg, Mode: 0o4755, Uid: 1, Gid: 2, Size: 7},
		"usr/bin/y": {Typeflag: tar.TypeLink, Mode: 0o644, Linkname: "usr/bin/x"},
		"usr/bin/z": {Typeflag: tar.TypeSymlink, Mode: 0o644, Linkname: "../bin/x"},
		"tmp/":      {Typeflag: tar.TypeDir, Mode: 0o1777},
	} {
		h := got[name]
		if h == nil || h.Typeflag != want.Typeflag || h.Mode != want.Mode || h.Uid != want.Uid || h.Gid != want.Gid || h.Size != want.Size || h.Linkname != want.Linkname {
			t.Errorf("%s is %+v", name, h)
		}
	}
	if len(got) != 6 {
		t.Errorf("%d entries", len(got))
	}
	if _, err := Build(Image{Layers: []Layer{{{Path: "/"}}}}); err == nil {
		t.Error("a file without a name is accepted")
	}
}

func TestArchive(t *testing.T) {
	var first, second bytes.Buffer
	for _, w := range []io.Writer{&first, &second} {
		b, err := Build(sample)
		if err != nil {
			t.Fatal(err)
		}
		if err := Write(w, b, b); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same image gives different archives")
	}
	b, _ := Build(sample)
	for d, blob := range b.Blobs {
		if digest.FromBytes(blob) != d {
			t.Errorf("the blob %s has another digest", d)
		}
		if files(t, first.Bytes())["blobs/sha256/"+d.Encoded()] == nil {
			t.Errorf("the archive has no blob %s", d)
		}
	}
	var manifest ocispec.Manifest
	if err := json.Unmarshal(b.Blobs[b.Manifest.Digest], &manifest); err != nil {
		t.Fatal(err)
	}
	var cfg ocispec.Image
	if err := json.Unmarshal(b.Blobs[manifest.Config.Digest], &cfg); err != nil {
		t.Fatal(err)
	}
	if len(cfg.RootFS.DiffIDs) != 2 || len(manifest.Layers) != 2 || cfg.Config.Entrypoint[0] != "/x" || cfg.OS != "linux" {
		t.Errorf("%+v %+v", manifest, cfg)
	}
	if tagOf("localhost:5000/a/b:v1") != "v1" || tagOf("localhost:5000/a") != "localhost:5000/a" {
		t.Error("tagOf")
	}
}
