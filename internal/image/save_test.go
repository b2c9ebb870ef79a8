package image_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/internal/image/store"
	"monopod.dev/monopod/test/images"
)

func (f *fixture) save(refs ...string) []byte {
	f.t.Helper()
	var out bytes.Buffer
	if err := f.Save(f.ctx, refs, &out); err != nil {
		f.t.Fatal(err)
	}
	return out.Bytes()
}

// whitedOut has two layers, of which the upper one removes things of the lower.
func whitedOut(name string) ociarchive.Image {
	return ociarchive.Image{Name: name, Config: ocispec.ImageConfig{Cmd: []string{"x"}}, Layers: []ociarchive.Layer{
		{{Path: "d/gone", Data: []byte("1")}, {Path: "d/stays", Data: []byte("2")}, {Path: "opaque/old", Data: []byte("3")}, {Path: "hard", Hardlink: "d/stays"}},
		{{Path: "d/.wh.gone"}, {Path: "opaque/.wh..wh..opq"}, {Path: "opaque/new", Data: []byte(strings.Repeat("new", 1000))}, {Path: "l", Symlink: "/d"}},
	}}
}

// The files of an archive, by name.
func unarchive(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for tr := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(tr); err != nil {
			t.Fatal(err)
		}
	}
}

// An image that is saved on one node and loaded on another is the same image.
func TestSave(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	push(t, r, whitedOut(""), "a/white", "v1")
	f := open(t)
	pulled := f.pull(r.Addr + "/a/white:v1")
	if _, err := f.load(dockerArchive(t, two("", "docker"), "app/two:v2", "app/two:v3")); err != nil {
		t.Fatal(err)
	}
	docker, err := f.Get(f.ctx, "app/two:v2")
	if err != nil {
		t.Fatal(err)
	}
	archive := f.save(string(pulled.ID), "app/two:v3", "app/two:v2")
	if again := f.save(string(pulled.ID), "app/two:v3"); !bytes.Equal(archive, again) {
		t.Error("the same images made another archive")
	}
	files := unarchive(t, archive)
	for name, data := range files {
		if hex, ok := strings.CutPrefix(name, "blobs/sha256/"); ok && hex != "" && digest.FromBytes(data).Encoded() != hex {
			t.Errorf("%s has other contents", name)
		}
	}
	var list []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := json.Unmarshal(files["manifest.json"], &list); err != nil || len(list) != 2 {
		t.Fatalf("manifest.json: %s, %v", files["manifest.json"], err)
	}
	if got := list[1].RepoTags; !slices.Equal(got, []string{"app/two:v2", "app/two:v3"}) {
		t.Errorf("docker's tags: %v", got)
	}
	for _, img := range list {
		for _, name := range append(img.Layers, img.Config) {
			if files[name] == nil {
				t.Errorf("manifest.json names %s, which is not there", name)
			}
		}
	}

	for kind, strip := range map[string][]string{"as an OCI layout": nil, "as a docker-archive": {"oci-layout", "index.json"}} {
		t.Run(kind, func(t *testing.T) {
			elsewhere := open(t)
			names, err := elsewhere.load(bytes.NewReader(without(t, archive, strip...)))
			if want := []string{pulled.RepoTags[0], "docker.io/app/two:v2", "docker.io/app/two:v3"}; err != nil || !slices.Equal(names, want) {
				t.Fatalf("names %v, want %v, %v", names, want, err)
			}
			for _, want := range []store.Image{pulled, docker} {
				got, err := elsewhere.Get(t.Context(), want.RepoTags[0])
				if err != nil || got.ID != want.ID || got.ChainID != want.ChainID || !slices.Equal(got.RepoTags, want.RepoTags) {
					t.Errorf("%+v, %v; saved was %+v", got, err, want)
				}
				if len(got.RepoDigests) != 0 {
					t.Errorf("a manifest that no registry has is a name: %v", got.RepoDigests)
				}
			}
			// What was loaded can be saved again, with the same blobs.
			if again := elsewhere.save(string(pulled.ID), string(docker.ID)); !bytes.Equal(again, archive) {
				t.Error("another archive came out")
			}
		})
	}
}

// without is the archive without some files.
func without(t *testing.T, archive []byte, names ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	tw := tar.NewWriter(&out)
	for tr := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(names, h.Name) {
			continue
		}
		if err := tw.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(tw, tr); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// An archive whose manifest is the registry's own gives the image its digest as a name, too.
func TestLoadedDigest(t *testing.T) {
	built, err := ociarchive.Build(two("registry.example/app:1", "x"))
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := ociarchive.Write(&archive, built); err != nil {
		t.Fatal(err)
	}
	f := open(t)
	if _, err := f.load(&archive); err != nil {
		t.Fatal(err)
	}
	want := "registry.example/app@" + built.Manifest.Digest.String()
	img, err := f.Get(f.ctx, want)
	if err != nil || !slices.Equal(img.RepoDigests, []string{want}) || !slices.Equal(img.RepoTags, []string{"registry.example/app:1"}) {
		t.Errorf("%+v, %v", img, err)
	}
}

func TestSaveRefusals(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	push(t, r, whitedOut(""), "a/white", "v1")
	push(t, r, ociarchive.Image{Layers: whitedOut("").Layers[:1], Config: ocispec.ImageConfig{Cmd: []string{"other"}}}, "a/base", "v1")
	f := open(t)
	img := f.pull(r.Addr + "/a/white:v1")
	base := f.pull(r.Addr + "/a/base:v1")
	layers, err := f.Layers(f.ctx, img.ID)
	if err != nil {
		t.Fatal(err)
	}
	save := func(refs ...string) error { return f.Save(f.ctx, refs, io.Discard) }
	mustFail(t, save(), errdefs.IsInvalidArgument, "at least one")
	mustFail(t, save("no/such:image"), errdefs.IsNotFound, "no/such:image")
	mustFail(t, save("No"), errdefs.IsInvalidArgument)

	// A file that somebody has changed.
	file := filepath.Join(layers[0], "opaque/new")
	if err := os.WriteFile(file, []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	mustFail(t, save(string(img.ID)), errdefs.IsDataLoss, "opaque/new", "3000 bytes")

	// A layer that was unpacked before there were records: two images share it.
	record := filepath.Join(filepath.Dir(layers[1]), "recipe")
	if err := os.Remove(record); err != nil {
		t.Fatal(err)
	}
	mustFail(t, save(string(img.ID)), errdefs.IsFailedPrecondition, "layer 1 of 2", "kept no record", base.RepoTags[0], "pull or load them again")

	// A failed save holds nothing, and the remedy works.
	for _, i := range []store.Image{img, base} {
		if err := f.Remove(f.ctx, string(i.ID)); err != nil {
			t.Fatal(err)
		}
	}
	awaitGone(t, layers[1])
	again := f.pull(r.Addr + "/a/white:v1")
	if err := save(string(again.ID)); err != nil {
		t.Error(err)
	}
}

// What is being saved stays until it is saved.
func TestSaveHolds(t *testing.T) {
	f := open(t)
	if _, err := f.load(dockerArchive(t, two("", "held"), "app:1")); err != nil {
		t.Fatal(err)
	}
	w := &removing{f: f}
	if err := f.Save(f.ctx, []string{"app:1"}, w); err != nil {
		t.Fatal(err)
	}
	if !w.removed {
		t.Fatal("nothing was written")
	}
	f.mustBeEmpty()
	ctx, cancel := context.WithCancel(f.ctx)
	cancel()
	if err := f.Save(ctx, []string{"app:1"}, io.Discard); err == nil {
		t.Error("a cancelled save ended well")
	}
}

// removing removes the image when the first bytes of it come.
type removing struct {
	f       *fixture
	removed bool
}

func (r *removing) Write(p []byte) (int, error) {
	if !r.removed {
		r.removed = true
		if err := r.f.Remove(r.f.ctx, "app:1"); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}
