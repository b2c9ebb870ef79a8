package image_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	digest "github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.uber.org/goleak"

	"monopod.dev/monopod/internal/image"
	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/internal/image/store"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

// fixture is a store in a temporary directory. Its checks at the end: nothing mounted below it, no goroutine left.
type fixture struct {
	*image.Store
	t    testing.TB
	ctx  context.Context
	cfg  image.Config
	logs *lockedBuffer
}

func open(t testing.TB) *fixture {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	f := &fixture{t: t, ctx: t.Context(), logs: &lockedBuffer{}}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir) // temporary mounts count as well
	harness.CheckPlace(t, harness.Place{Dirs: []string{dir}})
	t.Cleanup(func() {
		// Idle connections of the test itself, and of its reverse proxy, to the registry.
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		goleak.VerifyNone(t, leaks)
	})
	f.cfg = image.Config{
		Root:              filepath.Join(dir, "images"),
		RegistryConfigDir: filepath.Join(dir, "certs.d"),
		RetryDelay:        5 * time.Millisecond,
		Log:               slog.New(slog.NewTextHandler(f.logs, nil)),
	}
	f.reopen()
	t.Cleanup(f.close)
	return f
}

// openParallel is open for a test that runs beside others: it does not look for what is left in the process.
func openParallel(t testing.TB) *fixture {
	t.Helper()
	dir := t.TempDir()
	f := &fixture{t: t, ctx: t.Context(), logs: &lockedBuffer{}}
	f.cfg = image.Config{Root: filepath.Join(dir, "images"), RegistryConfigDir: filepath.Join(dir, "certs.d"), RetryDelay: 5 * time.Millisecond, Log: slog.New(slog.NewTextHandler(f.logs, nil))}
	f.reopen()
	t.Cleanup(f.close)
	return f
}

func (f *fixture) reopen() {
	f.t.Helper()
	s, err := image.Open(f.ctx, f.cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	f.Store = s
}

func (f *fixture) close() {
	if f.Store == nil {
		return
	}
	if err := f.Store.Close(); err != nil {
		f.t.Error(err)
	}
	f.Store = nil
}

func (f *fixture) pull(ref string) store.Image {
	f.t.Helper()
	img, err := f.Pull(f.ctx, image.PullRequest{Ref: ref})
	if err != nil {
		f.t.Fatal(err)
	}
	return img
}

// read returns a file of the image as a container would see it: from the topmost layer that has it.
func (f *fixture) read(img store.Image, path string) string {
	f.t.Helper()
	layers, err := f.Layers(f.ctx, img.ID)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, dir := range layers {
		if raw, err := os.ReadFile(filepath.Join(dir, path)); err == nil {
			return string(raw)
		}
	}
	f.t.Fatalf("image %s has no file %s", img.ID, path)
	return ""
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// two is an image of two layers; the upper one changes a file of the lower, and removes another.
func two(name, text string) ociarchive.Image {
	return ociarchive.Image{
		Name:   name,
		Config: ocispec.ImageConfig{Cmd: []string{"/bin/true"}, Env: []string{"A=1"}, User: "1000:1000", WorkingDir: "/w"},
		Layers: []ociarchive.Layer{
			{{Path: "etc/shared", Data: []byte("lower")}, {Path: "etc/gone", Data: []byte("x")}, {Path: "bin/su", Mode: 0o4755, Data: []byte("s")}},
			{{Path: "etc/shared", Data: []byte(text)}, {Path: "etc/.wh.gone"}, {Path: "owned", UID: 7, GID: 8, Data: []byte("o")}},
		},
	}
}

func push(t *testing.T, r *images.Registry, img ociarchive.Image, repository, tag string) digest.Digest {
	t.Helper()
	d, err := r.Push(t.Context(), img, repository, tag)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestPullGetListRemove(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	manifest := push(t, r, two("", "upper"), "a/two", "v1")
	f := open(t)
	ref := r.Addr + "/a/two"
	img := f.pull(ref + ":v1")

	if want := []string{ref + ":v1"}; !slices.Equal(img.RepoTags, want) {
		t.Errorf("tags %v, want %v", img.RepoTags, want)
	}
	if want := []string{ref + "@" + manifest.String()}; !slices.Equal(img.RepoDigests, want) {
		t.Errorf("digests %v, want %v", img.RepoDigests, want)
	}
	if img.Config.User != "1000:1000" || img.Config.WorkingDir != "/w" || img.Size == 0 || img.ChainID == "" {
		t.Errorf("image %+v", img)
	}
	for _, by := range []string{ref + ":v1", ref + "@" + manifest.String(), ref + ":v1@" + manifest.String(), string(img.ID), strings.TrimPrefix(string(img.ID), "sha256:")} {
		if got, err := f.Get(f.ctx, by); err != nil || got.ID != img.ID {
			t.Errorf("Get(%s): %v, %v", by, got.ID, err)
		}
	}
	if got := f.read(img, "etc/shared"); got != "upper" {
		t.Errorf("the upper layer's file holds %q", got)
	}
	layers, err := f.Layers(f.ctx, img.ID)
	if err != nil || len(layers) != 2 {
		t.Fatalf("layers %v, %v", layers, err)
	}
	if fi, err := os.Stat(filepath.Join(layers[1], "bin/su")); err != nil || fi.Mode()&os.ModeSetuid == 0 {
		t.Errorf("setuid is lost: %v %v", fi, err)
	}
	if fi, err := os.Lstat(filepath.Join(layers[0], "etc/gone")); err != nil || fi.Mode()&os.ModeCharDevice == 0 {
		t.Errorf("the whiteout is no overlay whiteout: %v %v", fi, err)
	}

	// A second pull of the same changes nothing; after a restart all is as before.
	if again := f.pull(ref + ":v1"); again.ID != img.ID {
		t.Errorf("pulled again: %s, before %s", again.ID, img.ID)
	}
	f.close()
	f.reopen()
	list, err := f.List(f.ctx)
	if err != nil || len(list) != 1 || list[0].ID != img.ID {
		t.Fatalf("after a restart: %v, %v", list, err)
	}

	if err := f.Remove(f.ctx, ref+":v1"); err != nil {
		t.Fatal(err)
	}
	if err := f.Remove(f.ctx, ref+":v1"); err != nil {
		t.Errorf("removing again: %v", err)
	}
	if _, err := f.Get(f.ctx, string(img.ID)); !errdefs.IsNotFound(err) {
		t.Errorf("a removed image: %v", err)
	}
	if _, err := os.Stat(layers[0]); !os.IsNotExist(err) {
		t.Errorf("the layers of a removed image are still there: %v", err)
	}
	if _, used, _, err := f.FsInfo(f.ctx); err != nil || used != 0 {
		t.Errorf("an empty store uses %d bytes, %v", used, err)
	}
}

func TestShortNamesAreCompleted(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	push(t, r, two("", "hub"), "library/thing", "latest")
	f := open(t)
	if err := r.WriteHosts(f.cfg.RegistryConfigDir, "docker.io"); err != nil {
		t.Fatal(err)
	}
	img := f.pull("thing")
	if want := []string{"docker.io/library/thing:latest"}; !slices.Equal(img.RepoTags, want) {
		t.Errorf("tags %v, want %v", img.RepoTags, want)
	}
	for _, by := range []string{"thing", "thing:latest", "library/thing", "docker.io/thing", "index.docker.io/library/thing"} {
		if _, err := f.Get(f.ctx, by); err != nil {
			t.Errorf("Get(%s): %v", by, err)
		}
	}
}

func TestTagsMoveAndImagesShareLayers(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	f := open(t)
	ref := r.Addr + "/a/two:latest"
	first := push(t, r, two("", "one"), "a/two", "latest")
	old := f.pull(ref)
	push(t, r, two("", "two"), "a/two", "latest")
	img := f.pull(ref)
	if img.ID == old.ID || f.read(img, "etc/shared") != "two" {
		t.Fatalf("the tag did not move: %+v", img)
	}
	was, err := f.Get(f.ctx, string(old.ID))
	if err != nil || len(was.RepoTags) != 0 || len(was.RepoDigests) != 1 || !strings.HasSuffix(was.RepoDigests[0], first.String()) {
		t.Fatalf("the old image is now %+v, %v", was, err)
	}
	a, _ := f.Layers(f.ctx, old.ID)
	b, _ := f.Layers(f.ctx, img.ID)
	if len(a) != 2 || len(b) != 2 || a[1] != b[1] {
		t.Errorf("the common layer is there twice: %v %v", a, b)
	}
	if err := f.Remove(f.ctx, string(old.ID)); err != nil {
		t.Fatal(err)
	}
	if f.read(img, "bin/su") != "s" {
		t.Error("removing one image damaged the other")
	}
}

func TestPinKeepsLayers(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	push(t, r, two("", "pinned"), "a/two", "v1")
	f := open(t)
	img := f.pull(r.Addr + "/a/two:v1")
	for range 2 {
		if err := f.Pin(f.ctx, img.ID, "container1"); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Remove(f.ctx, string(img.ID)); err != nil {
		t.Fatal(err)
	}
	f.close()
	f.reopen()
	if _, err := f.Get(f.ctx, string(img.ID)); !errdefs.IsNotFound(err) {
		t.Errorf("a removed image is listed because it is pinned: %v", err)
	}
	layers, err := f.Layers(f.ctx, img.ID)
	if err != nil || f.read(img, "etc/shared") != "pinned" {
		t.Fatalf("a pin did not keep the layers: %v", err)
	}
	if pins, err := f.Pins(f.ctx); err != nil || !slices.Equal(pins["container1"], []ids.ImageID{img.ID}) {
		t.Errorf("pins %v, %v", pins, err)
	}
	for range 2 {
		if err := f.Unpin(f.ctx, img.ID, "container1"); err != nil {
			t.Fatal(err)
		}
	}
	f.close() // ends the collection that Unpin asked for, or
	f.reopen()
	if err := f.Remove(f.ctx, string(img.ID)); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, layers[0])
	if err := f.Pin(f.ctx, img.ID, "container2"); !errdefs.IsNotFound(err) {
		t.Errorf("pin of an image that is gone: %v", err)
	}
}

func TestConcurrentPullsAreOne(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	push(t, r, two("", "x"), "a/two", "v1")
	f := open(t)
	var wg sync.WaitGroup
	got := make([]ids.ImageID, 8)
	for i := range got {
		wg.Go(func() {
			img, err := f.Pull(f.ctx, image.PullRequest{Ref: r.Addr + "/a/two:v1"})
			if err != nil {
				t.Error(err)
			}
			got[i] = img.ID
		})
	}
	wg.Wait()
	if n := strings.Count(f.logs.String(), "image pulled"); n >= len(got) {
		t.Errorf("%d pulls for %d callers", n, len(got))
	}
	if slices.Sort(got); got[0] == "" || got[0] != got[len(got)-1] {
		t.Errorf("ids %v", got)
	}
}

func TestIndexPicksThisPlatform(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	f := open(t)
	index := func(repository string, archs ...string) {
		idx := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
		for _, arch := range archs {
			img := two("", arch)
			img.Architecture = arch
			b, err := ociarchive.Build(img)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.PushBuilt(t.Context(), b, repository, b.Manifest.Digest.String()); err != nil {
				t.Fatal(err)
			}
			idx.Manifests = append(idx.Manifests, b.Manifest)
		}
		raw, err := json.Marshal(idx)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.PushManifest(t.Context(), repository, "v1", idx.MediaType, raw); err != nil {
			t.Fatal(err)
		}
	}
	index("a/multi", "s390x", "amd64", "arm64", "ppc64le")
	img := f.pull(r.Addr + "/a/multi:v1")
	if got := f.read(img, "etc/shared"); got != "amd64" && got != "arm64" {
		t.Errorf("pulled the variant for %s", got)
	}
	index("a/other", "s390x", "ppc64le")
	_, err := f.Pull(f.ctx, image.PullRequest{Ref: r.Addr + "/a/other:v1"})
	mustFail(t, err, errdefs.IsNotFound, "a/other:v1", "no variant for this machine", "linux/s390x", "linux/ppc64le")

	single := two("", "s390x")
	single.Architecture = "s390x"
	push(t, r, single, "a/single", "v1")
	_, err = f.Pull(f.ctx, image.PullRequest{Ref: r.Addr + "/a/single:v1"})
	mustFail(t, err, errdefs.IsNotFound, "a/single:v1", "the image is for linux/s390x")
	if list, _ := f.List(f.ctx); len(list) != 1 {
		t.Errorf("failed pulls left images: %v", list)
	}
}

func TestLoad(t *testing.T) {
	f := open(t)
	build := func(img ociarchive.Image) *ociarchive.Built {
		b, err := ociarchive.Build(img)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	named, nameless := build(two("localhost/app/one:v1", "one")), build(two("", "nameless"))
	var plain bytes.Buffer
	if err := ociarchive.Write(&plain, named, nameless); err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	zw := gzip.NewWriter(&zipped)
	zw.Write(plain.Bytes())
	zw.Close()
	for name, archive := range map[string][]byte{"plain": plain.Bytes(), "gzip": zipped.Bytes()} {
		names, err := f.load(bytes.NewReader(archive))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if want := []string{"localhost/app/one:v1", nameless.Config.Digest.String()}; !slices.Equal(names, want) {
			t.Errorf("%s: names %v, want %v", name, names, want)
		}
	}
	img, err := f.Get(f.ctx, "localhost/app/one:v1")
	if err != nil || f.read(img, "etc/shared") != "one" {
		t.Fatalf("loaded: %+v %v", img, err)
	}
	img, err = f.Get(f.ctx, nameless.Config.Digest.String())
	if err != nil || f.read(img, "etc/shared") != "nameless" || len(img.RepoTags)+len(img.RepoDigests) != 0 {
		t.Fatalf("loaded: %+v %v", img, err)
	}

	// What docker save writes.
	names, err := f.load(dockerArchive(t, two("", "docker"), "app/two:v2", "app/two:v3"))
	if want := []string{"docker.io/app/two:v2", "docker.io/app/two:v3"}; err != nil || !slices.Equal(names, want) {
		t.Fatalf("docker archive: %v %v, want %v", names, err, want)
	}
	img, err = f.Get(f.ctx, "app/two:v3")
	if err != nil || f.read(img, "etc/shared") != "docker" || len(img.RepoTags) != 2 {
		t.Fatalf("loaded: %+v %v", img, err)
	}

	before, _ := f.List(f.ctx)
	for name, bad := range map[string][]byte{
		"empty": nil, "text": []byte(strings.Repeat("no archive ", 100)), "torn": plain.Bytes()[:plain.Len()/2],
		"gzip torn": zipped.Bytes()[:zipped.Len()/2],
	} {
		if _, err := f.load(bytes.NewReader(bad)); err == nil {
			t.Errorf("%s: loaded", name)
		} else if !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v is no InvalidArgument", name, err)
		}
	}
	if after, _ := f.List(f.ctx); len(after) != len(before) {
		t.Errorf("bad archives left images: %v", after)
	}
}

func TestImageWithoutLayers(t *testing.T) {
	r := images.NewRegistry(t, images.RegistryConfig{})
	push(t, r, ociarchive.Image{Config: ocispec.ImageConfig{Cmd: []string{"x"}}}, "a/scratch", "v1")
	f := open(t)
	img := f.pull(r.Addr + "/a/scratch:v1")
	layers, err := f.Layers(f.ctx, img.ID)
	if err != nil || len(layers) != 1 || img.ChainID != "" {
		t.Fatalf("%v %v %+v", layers, err, img)
	}
	if entries, err := os.ReadDir(layers[0]); err != nil || len(entries) != 0 {
		t.Errorf("%v %v", entries, err)
	}
}

func TestOneProcessAtATime(t *testing.T) {
	f := open(t)
	_, err := image.Open(f.ctx, f.cfg)
	mustFail(t, err, errdefs.IsUnavailable, f.cfg.Root, "in use by another process")
}

func mustFail(t *testing.T, err error, class func(error) bool, says ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if !class(err) {
		t.Errorf("the error has another class: %v", err)
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("the error does not say %q: %v", s, err)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("the error has several lines: %v", err)
	}
	t.Log(fmt.Sprint(err))
}
