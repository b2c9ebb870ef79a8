package image_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/klauspost/compress/zstd"
	digest "github.com/opencontainers/go-digest"

	"monopod.dev/monopod/internal/image"
	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/internal/kit/ids"
)

type member struct {
	name string
	data []byte
	kind byte
	link string
}

func archiveOf(t *testing.T, members ...member) []byte {
	t.Helper()
	var out bytes.Buffer
	tw := tar.NewWriter(&out)
	for _, m := range members {
		h := &tar.Header{Name: m.name, Mode: 0o644, Typeflag: m.kind, Linkname: m.link, Size: int64(len(m.data))}
		if m.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if err := tw.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write(m.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// parts are the documents of a small image, and its one layer, as one would put them into an archive by hand.
type parts struct {
	config, layer, manifest member
	index                   []byte
}

func partsOf(t *testing.T, change func(manifest map[string]any)) parts {
	t.Helper()
	img := two("", "hostile")
	img.Layers, img.Uncompressed = img.Layers[:1], true
	b, err := ociarchive.Build(img)
	if err != nil {
		t.Fatal(err)
	}
	var manifest map[string]any
	if err := json.Unmarshal(b.Blobs[b.Manifest.Digest], &manifest); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(manifest)
	}
	raw, err := json.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}
	blob := func(data []byte) member {
		return member{name: "blobs/sha256/" + digest.FromBytes(data).Encoded(), data: data}
	}
	p := parts{config: blob(b.Blobs[b.Config.Digest]), layer: blob(b.Blobs[b.Layers[0].Digest]), manifest: blob(raw)}
	p.index = p.indexOf(len(raw))
	return p
}

func (p parts) indexOf(size int) []byte {
	return fmt.Appendf(nil, `{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:%s","size":%d,`+
		`"annotations":{"io.containerd.image.name":"docker.io/library/hostile:1"}}]}`, filepath.Base(p.manifest.name), size)
}

var layoutFile = member{name: "oci-layout", data: []byte(`{"imageLayoutVersion":"1.0.0"}`)}

func shorter(p []byte, n int) []byte { return p[:len(p)-n] }

// Archives that are no image. Each error says what is wrong, and nothing stays of any of them.
func TestHostileArchives(t *testing.T) {
	p := partsOf(t, nil)
	index := member{name: "index.json", data: p.index}
	docker := func(config string, layers ...string) member {
		raw, err := json.Marshal([]map[string]any{{"Config": config, "RepoTags": []string{"hostile:1"}, "Layers": layers}})
		if err != nil {
			t.Fatal(err)
		}
		return member{name: "manifest.json", data: raw}
	}
	cfg, layer := member{name: "config.json", data: p.config.data}, member{name: "a/layer.tar", data: p.layer.data}
	huge := bytes.Repeat([]byte(" "), 9<<20)
	wrongSize := partsOf(t, func(m map[string]any) { m["config"].(map[string]any)["size"] = 5 })
	noDigest := partsOf(t, func(m map[string]any) { m["config"].(map[string]any)["digest"] = "../../../etc/shadow" })
	xz := append([]byte("\xfd7zXZ\x00"), huge[:100]...)

	cases := map[string]struct {
		archive []byte
		says    string
	}{
		"a name that leads out":        {archiveOf(t, member{name: "../../etc/cron.d/x", data: []byte("x")}), `"../../etc/cron.d/x"`},
		"a name with dots within":      {archiveOf(t, member{name: "blobs/../../x", data: []byte("x")}), "leads out of it"},
		"manifest.json leads out":      {archiveOf(t, docker("../../../etc/shadow"), cfg), `"../../../etc/shadow", which is not in the archive`},
		"a layer leads out":            {archiveOf(t, docker("config.json", "/etc/shadow"), cfg), `"/etc/shadow", which is not in the archive`},
		"a link leads out":             {archiveOf(t, docker("config.json", "l"), cfg, member{name: "l", kind: tar.TypeSymlink, link: "../../etc/shadow"}), `"l", which is not in the archive`},
		"links in a circle":            {archiveOf(t, docker("config.json", "l"), cfg, member{name: "l", kind: tar.TypeSymlink, link: "m"}, member{name: "m", kind: tar.TypeSymlink, link: "l"}), `"l", whose links lead in a circle`},
		"a huge manifest.json":         {archiveOf(t, member{name: "manifest.json", data: huge}), "9437184 bytes, at most 8388608"},
		"a huge oci-layout":            {archiveOf(t, member{name: "oci-layout", data: huge}), "9437184 bytes"},
		"a huge index.json":            {archiveOf(t, layoutFile, member{name: "index.json", data: huge}), "index.json has 9437184 bytes"},
		"a huge configuration":         {archiveOf(t, docker("huge"), member{name: "huge", data: huge}), "9437184 bytes"},
		"manifest.json is no JSON":     {archiveOf(t, member{name: "manifest.json", data: []byte("{")}), "manifest.json: unexpected end"},
		"manifest.json is no list":     {archiveOf(t, member{name: "manifest.json", data: []byte(`{"Config":1}`)}), "manifest.json: json"},
		"a configuration is no JSON":   {archiveOf(t, docker("config.json"), member{name: "config.json", data: []byte("no")}), "invalid character"},
		"a bad name":                   {archiveOf(t, member{name: "manifest.json", data: []byte(`[{"Config":"config.json","RepoTags":["BAD name"],"Layers":["a/layer.tar"]}]`)}, cfg, layer), "BAD name"},
		"no index.json":                {archiveOf(t, layoutFile, p.manifest), `"index.json", which is not in the archive`},
		"another layout":               {archiveOf(t, member{name: "oci-layout", data: []byte(`{"imageLayoutVersion":"9"}`)}, index), `version "9"`},
		"a blob is missing":            {archiveOf(t, layoutFile, index, p.manifest, p.config), p.layer.name + `", which is not in the archive`},
		"the manifest is missing":      {archiveOf(t, layoutFile, index, p.config, p.layer), "index.json names the file"},
		"a wrong digest":               {archiveOf(t, layoutFile, index, p.manifest, p.config, member{name: p.layer.name, data: []byte("another")}), "not what its name says"},
		"a wrong size in index.json":   {archiveOf(t, layoutFile, member{name: "index.json", data: p.indexOf(5)}, p.manifest, p.config, p.layer), "has 5 bytes, in the archive it has"},
		"a wrong size in the manifest": {archiveOf(t, layoutFile, member{name: "index.json", data: wrongSize.index}, wrongSize.manifest, p.config, p.layer), "has 5 bytes, in the archive it has"},
		"a digest that is none":        {archiveOf(t, layoutFile, member{name: "index.json", data: noDigest.index}, noDigest.manifest, p.config, p.layer), `"../../../etc/shadow"`},
		"cut off":                      {shorter(archiveOf(t, layoutFile, index, p.manifest, p.config, p.layer), 1124), "is cut off"},
		"xz":                           {xz, "compressed with xz"},
		"something else":               {archiveOf(t, member{name: "hello", data: []byte("hello")}), "without oci-layout and manifest.json"},
		"nothing":                      {archiveOf(t), "is empty"},
		"the layer is no tar":          {archiveOf(t, docker("config.json", "x"), cfg, member{name: "x", data: []byte(strings.Repeat("no tar", 500))}), "layer sha256:"},
		"the layer is another one":     {archiveOf(t, docker("config.json", "x"), cfg, member{name: "x", data: archiveOf(t, member{name: "f"})}), "configuration says"},
		"no layer at all":              {archiveOf(t, docker("config.json"), cfg), "manifest.json has 0 layers"},
	}
	f := open(t)
	for name, c := range cases {
		_, err := f.load(bytes.NewReader(c.archive))
		if err == nil {
			t.Errorf("%s: it was loaded", name)
			continue
		}
		if !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: the error does not say %q: %v", name, c.says, err)
		}
		if !errdefs.IsInvalidArgument(err) && !errdefs.IsFailedPrecondition(err) {
			t.Errorf("%s: the error has another class: %v", name, err)
		}
		t.Logf("%s: %v", name, err)
	}
	f.mustBeEmpty()
	if _, err := os.Stat("/etc/cron.d/x"); err == nil {
		t.Error("a file was written outside of the store")
	}
	// The same parts, put together well, are an image.
	good := archiveOf(t, layoutFile, index, p.manifest, p.config, p.layer)
	if names, err := f.load(bytes.NewReader(good)); err != nil || !slices.Equal(names, []string{"docker.io/library/hostile:1"}) {
		t.Errorf("%v, %v", names, err)
	}
	linked := archiveOf(t, docker("config.json", "z/layer.tar"), cfg, layer,
		member{name: "z/layer.tar", kind: tar.TypeSymlink, link: "../y/layer.tar"}, member{name: "y/layer.tar", kind: tar.TypeLink, link: "a/layer.tar"})
	if names, err := f.load(bytes.NewReader(linked)); err != nil || len(names) != 1 {
		t.Errorf("links within: %v, %v", names, err)
	}
}

func TestLoadNames(t *testing.T) {
	f := open(t)
	one, err := ociarchive.Build(two("localhost/one:1", "1"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := ociarchive.Build(two("", "2"))
	if err != nil {
		t.Fatal(err)
	}
	archive := func(imgs ...*ociarchive.Built) io.Reader {
		var out bytes.Buffer
		z, err := zstd.NewWriter(&out)
		if err != nil {
			t.Fatal(err)
		}
		if err := ociarchive.Write(z, imgs...); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return &out
	}
	loaded, err := f.Load(f.ctx, image.LoadRequest{Archive: archive(one), Name: "mine:2"})
	if err != nil || len(loaded) != 1 || !slices.Equal(loaded[0].Names, []string{"docker.io/library/mine:2"}) || loaded[0].ID != ids.ImageID(one.Config.Digest) {
		t.Errorf("%+v, %v", loaded, err)
	}
	if _, err := f.Get(f.ctx, "localhost/one:1"); !errdefs.IsNotFound(err) {
		t.Errorf("the archive's own name: %v", err)
	}
	_, err = f.Load(f.ctx, image.LoadRequest{Archive: archive(one, other), Name: "mine:3"})
	mustFail(t, err, errdefs.IsInvalidArgument, "2 images", "mine:3")
	_, err = f.Load(f.ctx, image.LoadRequest{Archive: archive(one), Name: "Mine"})
	mustFail(t, err, errdefs.IsInvalidArgument, "Mine")
	_, err = f.Load(f.ctx, image.LoadRequest{Archive: archive(one), Name: "mine@" + one.Manifest.Digest.String()})
	mustFail(t, err, errdefs.IsInvalidArgument, "has a digest")
}
