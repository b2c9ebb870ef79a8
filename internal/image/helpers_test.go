package image_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"monopod.dev/monopod/internal/image"
	"monopod.dev/monopod/internal/image/ociarchive"
)

// dockerArchive writes an image as docker save did before it wrote OCI layouts.
func dockerArchive(t *testing.T, img ociarchive.Image, tags ...string) *bytes.Reader {
	t.Helper()
	img.Uncompressed = true
	b, err := ociarchive.Build(img)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	add := func(name string, data []byte) {
		if err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	var layers []string
	for _, l := range b.Layers {
		name := l.Digest.Encoded() + "/layer.tar"
		layers = append(layers, name)
		add(name, b.Blobs[l.Digest])
	}
	config := b.Config.Digest.Encoded() + ".json"
	add(config, b.Blobs[b.Config.Digest])
	manifest, err := json.Marshal([]map[string]any{{"Config": config, "RepoTags": tags, "Layers": layers}})
	if err != nil {
		t.Fatal(err)
	}
	add("manifest.json", manifest)
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(buf.Bytes())
}

// hosts writes the hosts.toml of a registry.
func (f *fixture) hosts(registry, conf string) {
	f.t.Helper()
	dir := filepath.Join(f.cfg.RegistryConfigDir, registry)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(conf), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// load returns the names of the images, or the id of one that has none.
func (f *fixture) load(r io.Reader) (names []string, err error) {
	loaded, err := f.Load(f.ctx, image.LoadRequest{Archive: r})
	for _, l := range loaded {
		if len(l.Names) == 0 {
			l.Names = []string{string(l.ID)}
		}
		names = append(names, l.Names...)
	}
	return names, err
}

// awaitGone waits until a collection that runs in the background has removed the path.
func awaitGone(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(path); os.IsNotExist(err) {
			return
		}
	}
	t.Errorf("%s is still there", path)
}
