package image_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/image"
)

// TestHostileDocuments: manifests, indexes and configurations that are not what they should be.
func TestHostileDocuments(t *testing.T) {
	both(t, func(f *field) []hostileCase {
		var all []hostileCase
		for _, group := range [][]hostileCase{manifestCases(f.t), descriptorCases(f.t), configCases(f.t), indexCases(f.t)} {
			all = append(all, group...)
		}
		return all
	})
}

var goodLayer = rawTar(reg("a", "x"))

// edited is a good image of one layer whose manifest is changed as JSON.
func edited(t testing.TB, change func(m map[string]any)) rawImage {
	t.Helper()
	img := rawImage{layers: []rawLayer{{plain: goodLayer}}}
	img.build(t)
	var m map[string]any
	if err := json.Unmarshal(img.manifest, &m); err != nil {
		t.Fatal(err)
	}
	change(m)
	img.manifest, img.layers = mustJSON(t, m), nil
	img.blobs = append(img.blobs, goodLayer)
	return img
}

func raw(manifest string) rawImage { return rawImage{manifest: []byte(manifest)} }

func manifestCases(t testing.TB) []hostileCase {
	good := edited(t, func(map[string]any) {})
	twice := strings.Replace(string(good.manifest), `"layers":`, `"layers":[],"layers":`, 1)
	other := strings.Replace(string(good.manifest), `"layers":`, `"LAYERS":`, 1)
	annotated := edited(t, func(m map[string]any) {
		m["annotations"] = map[string]string{"x": strings.Repeat("a", 3<<20)}
	})
	big := edited(t, func(m map[string]any) {
		m["annotations"] = map[string]string{"x": strings.Repeat("a", 9<<20)}
	})
	// containerd's resolver, which looks at the size first, calls it NotFound.
	tooBig := expectation{says: []string{"9437"}, class: func(err error) bool { return errdefs.IsNotFound(err) || errdefs.IsInvalidArgument(err) }}
	both := edited(t, func(m map[string]any) { m["manifests"] = []any{} })
	return []hostileCase{
		{"a good one", good, tree("a=x")},
		{"no JSON", raw("{"), refused("no JSON document")},
		{"nothing", raw(" "), refused("no JSON document")},
		{"null", raw("null"), refused("digest \"\"")},
		{"a list", raw("[]"), refused("no JSON document")},
		{"a number", raw("1e999999"), refused("no JSON document")},
		{"binary", raw("\xff\xfe\x00"), refused("no JSON document")},
		{"deeply nested", raw(strings.Repeat("[", 2_000_000)), refused("no JSON document", "depth")},
		{"deeply nested where nobody looks", edited(t, func(m map[string]any) {
			m["x"] = json.RawMessage(strings.Repeat("[", 9990) + strings.Repeat("]", 9990))
		}), tree("a=x")},
		{"a key twice", rawImage{manifest: []byte(twice), config: good.config, blobs: good.blobs}, tree("a=x")},
		{"a key in capitals", rawImage{manifest: []byte(other), config: good.config, blobs: good.blobs}, tree("a=x")},
		{"layers are text", edited(t, func(m map[string]any) { m["layers"] = "none" }), refused("no manifest", "layers")},
		{"a digest is a number", edited(t, func(m map[string]any) { m["config"].(map[string]any)["digest"] = 5 }), refused("no manifest", "digest")},
		{"a size is text", edited(t, func(m map[string]any) { m["config"].(map[string]any)["size"] = "5" }), refused("no manifest", "size")},
		{"a size beyond 64 bits", edited(t, func(m map[string]any) {
			m["config"].(map[string]any)["size"] = json.RawMessage("18446744073709551616")
		}), refused("no manifest", "size")},
		{"manifest and index at once", both, refused("should be a manifest")},
		{"an index that says it is a manifest", rawImage{manifest: []byte(`{"manifests":[]}`)}, refused("should be a manifest")},
		{"a manifest that says it is an index", rawImage{manifest: good.manifest, config: good.config, blobs: good.blobs, mediaType: ocispec.MediaTypeImageIndex}, refused("should be an index")},
		{"schema 1", raw(`{"schemaVersion":1,"name":"a","fsLayers":[{"blobSum":"sha256:x"}]}`), refused("schema 1")},
		{"schema 1 by its type", rawImage{manifest: good.manifest, blobs: good.blobs, mediaType: "application/vnd.docker.distribution.manifest.v1+prettyjws"},
			expectation{says: []string{"no image"}, class: func(err error) bool { return errdefs.IsNotFound(err) || errdefs.IsInvalidArgument(err) }}},
		{"annotations of 3 MB", annotated, tree("a=x")},
		{"annotations of 9 MB", big, tooBig},
		{"no layers", edited(t, func(m map[string]any) { m["layers"] = []any{} }), refused("0 layers")},
		{"a layer too many", edited(t, func(m map[string]any) { m["layers"] = append(m["layers"].([]any), m["layers"].([]any)[0]) }), refused("2 layers")},
		{"5000 layers", edited(t, func(m map[string]any) {
			var layers []any
			for range 5000 {
				layers = append(layers, m["layers"].([]any)[0])
			}
			m["layers"] = layers
		}), refused("5000 layers", "an overlay takes 500", "fewer layers")},
		{"an artifact", edited(t, func(m map[string]any) {
			m["config"].(map[string]any)["mediaType"] = "application/vnd.cncf.helm.config.v1+json"
		}), refused("no container image", "helm")},
		{"an encrypted layer", edited(t, layerType("application/vnd.oci.image.layer.v1.tar+gzip+encrypted")), refused("+encrypted", "no layer that can be unpacked")},
		{"a layer of an unknown type", edited(t, layerType("text/plain\n\x1b[2J")), refused(`text/plain\n\x1b[2J`)},
		{"a layer of a very long type", edited(t, layerType(strings.Repeat("x", 1<<20))), refused("no layer that can be unpacked", "[...]")},
		{"a plain layer that says gzip", edited(t, layerType(ocispec.MediaTypeImageLayerGzip)), tree("a=x")},
	}
}

func layerType(mediaType string) func(map[string]any) {
	return func(m map[string]any) { m["layers"].([]any)[0].(map[string]any)["mediaType"] = mediaType }
}

func descriptorCases(t testing.TB) []hostileCase {
	set := func(of, key string, value any) rawImage {
		return edited(t, func(m map[string]any) {
			if of == "layer" {
				m["layers"].([]any)[0].(map[string]any)[key] = value
				return
			}
			m[of].(map[string]any)[key] = value
		})
	}
	sha512 := digest.SHA512.FromBytes(goodLayer).String()
	var out []hostileCase
	for _, of := range []string{"config", "layer"} {
		for name, d := range map[string]string{
			"no digest": "", "a digest without hex": "sha256:", "a short digest": "sha256:abcd", "a path": "sha256:../../../../etc/passwd", "capitals": "sha256:" + strings.Repeat("A", 64),
			"md5": "md5:" + strings.Repeat("a", 32), "an unknown algorithm": "x:y", "a long digest": "sha256:" + strings.Repeat("a", 1<<20), "a newline": "sha256:" + strings.Repeat("a", 63) + "\n",
		} {
			out = append(out, hostileCase{of + ": " + name, set(of, "digest", d), refused("digest")})
		}
		out = append(out, hostileCase{of + ": a negative size", set(of, "size", -5), refused("-5")})
	}
	return append(out,
		hostileCase{"config: sha512", set("config", "digest", digest.SHA512.FromBytes([]byte("x")).String()), refused("sha512")},
		hostileCase{"layer: sha512 of another", set("layer", "digest", sha512[:len(sha512)-1]), refused("digest")},
	)
}

// config makes an image whose configuration is given; DIFF stands for the layer's.
func config(json string) rawImage {
	return rawImage{layers: []rawLayer{{plain: goodLayer}}, config: []byte(strings.ReplaceAll(json, "DIFF", `"rootfs":{"type":"layers","diff_ids":["`+digest.FromBytes(goodLayer).String()+`"]}`))}
}

func configCases(t testing.TB) []hostileCase {
	huge := strings.Repeat("x", 9<<20)
	env := mustJSON(t, strings.Split(strings.Repeat("A=1,", 100_000), ","))
	chain := strings.TrimSuffix(strings.Repeat(`"`+digest.FromString("x").String()+`",`, 50_000), ",")
	return []hostileCase{
		{"no JSON", config("{"), refused("configuration", "JSON")},
		{"null", config("null"), refused("1 layers", "0")},
		{"a list", config("[]"), refused("configuration")},
		{"nothing in it", config("{}"), refused("1 layers")},
		{"9 MB", config(`{"x":"` + huge + `",DIFF}`), refused("8388608")},
		{"deeply nested", config(strings.Repeat(`{"a":`, 1_000_000)), refused("depth")},
		{"without a platform", config(`{DIFF}`), tree("a=x")},
		{"for Windows", config(`{"os":"windows","architecture":"amd64",DIFF}`), expectation{says: []string{"windows"}, class: errdefs.IsNotFound}},
		{"for nonsense", config(`{"os":"../..","architecture":"\u0000",DIFF}`), expectation{says: []string{"../.."}, class: errdefs.IsNotFound}},
		{"text for layers", config(`{"rootfs":{"diff_ids":"x"}}`), refused("configuration")},
		{"a bad layer", config(`{"rootfs":{"diff_ids":["../../x"]}}`), refused("digest", "../../x")},
		{"another layer", config(`{"rootfs":{"diff_ids":["` + digest.FromString("x").String() + `"]}}`), refused("the image's configuration says", digest.FromString("x").String())},
		{"50,000 layers", config(`{"rootfs":{"diff_ids":[` + chain + `]}}`), refused("50000")},
		{"strange values", config(`{"config":{"User":"../../root\n:0","Env":["","=","A","A=\u0000","LD_PRELOAD=/x"],"Cmd":[""],"Entrypoint":[],"WorkingDir":"../../../etc",` +
			`"Volumes":{"/":{},"../..":{},"":{}},"ExposedPorts":{"99999999/nonsense":{},"":{}},"StopSignal":"SIGNOTHING","Labels":{"":"x"}},DIFF}`), tree("a=x")},
		{"100,000 variables", config(`{"config":{"Env":` + string(env) + `},DIFF}`), tree("a=x")},
		{"wrong types", config(`{"config":{"Env":"A=1"},DIFF}`), refused("Env")},
		{"a key twice", config(`{"rootfs":{"diff_ids":["x"]},DIFF}`), tree("a=x")},
		{"a time that is none", config(`{"created":"yesterday",DIFF}`), refused("configuration")},
	}
}

// indexCases wrap a good image into indexes.
func indexCases(t testing.TB) []hostileCase {
	in := func(wrap func(good ocispec.Descriptor) any) rawImage {
		img := rawImage{layers: []rawLayer{{plain: goodLayer}}}
		img.build(t)
		index := mustJSON(t, wrap(descOf(ocispec.MediaTypeImageManifest, img.manifest)))
		return rawImage{manifest: index, mediaType: ocispec.MediaTypeImageIndex, blobs: img.blobs, documents: []document{{ocispec.MediaTypeImageManifest, img.manifest}}}
	}
	list := func(all ...ocispec.Descriptor) any { return map[string]any{"schemaVersion": 2, "manifests": all} }
	nested := func(depth int) rawImage {
		img := in(func(good ocispec.Descriptor) any { return list(good) })
		for range depth {
			img.documents = append(img.documents, document{ocispec.MediaTypeImageIndex, img.manifest})
			img.manifest = mustJSON(t, list(descOf(ocispec.MediaTypeImageIndex, img.manifest)))
		}
		return img
	}
	windows := &ocispec.Platform{OS: "windows", Architecture: "amd64"}
	return []hostileCase{
		{"an index", in(func(good ocispec.Descriptor) any { return list(good) }), tree("a=x")},
		{"an index within an index", nested(1), tree("a=x")},
		{"indexes, ten deep", nested(10), refused("indexes within indexes")},
		{"indexes, 200 deep", nested(200), refused("indexes within indexes")},
		{"an empty index", in(func(ocispec.Descriptor) any { return list() }), expectation{says: []string{"no"}, class: errdefs.IsNotFound}},
		{"for other machines", in(func(good ocispec.Descriptor) any { good.Platform = windows; return list(good) }), expectation{says: []string{"windows"}, class: errdefs.IsNotFound}},
		{"5000 manifests", in(func(good ocispec.Descriptor) any {
			var all []ocispec.Descriptor
			for range 5000 {
				all = append(all, good)
			}
			return list(all...)
		}), refused("5000 manifests", "1000")},
		{"a manifest of an unknown type", in(func(good ocispec.Descriptor) any { good.MediaType = "text/plain"; return list(good) }), expectation{says: []string{}, class: func(err error) bool {
			return errdefs.IsNotFound(err) || errdefs.IsInvalidArgument(err)
		}}},
		{"a manifest that is missing", in(func(good ocispec.Descriptor) any { good.Digest = digest.FromString("missing"); return list(good) }), expectation{says: []string{digest.FromString("missing").Encoded()}, class: func(err error) bool {
			return errdefs.IsNotFound(err) || errdefs.IsInvalidArgument(err)
		}}},
		{"a wrong size", in(func(good ocispec.Descriptor) any { good.Size = 5; return list(good) }), expectation{says: []string{digest.FromBytes(goodManifest(t)).String()[:10]}, class: wrongBytes}},
		{"a huge size", in(func(good ocispec.Descriptor) any { good.Size = 1 << 62; return list(good) }), expectation{says: []string{"4611686018427387904"}, class: wrongBytes}},
		{"a size of nothing", in(func(good ocispec.Descriptor) any { good.Size = 0; return list(good) }), expectation{says: []string{"sha256:"}, class: wrongBytes}},
	}
}

func goodManifest(t testing.TB) []byte {
	img := rawImage{layers: []rawLayer{{plain: goodLayer}}}
	img.build(t)
	return img.manifest
}

// wrongBytes is the class of what is not as large as it should be: the registry's fault, or the archive's.
func wrongBytes(err error) bool {
	return errdefs.IsFailedPrecondition(err) || errdefs.IsInvalidArgument(err)
}

// An index cannot contain itself, for its digest would have to be known before; a registry that serves one under the digest all the
// same is found out by the digest.
func TestIndexThatContainsItself(t *testing.T) {
	f := newField(t, true)
	self := digest.FromString("any")
	raw := fmt.Appendf(nil, `{"schemaVersion":2,"manifests":[{"mediaType":%q,"digest":%q,"size":%d}]}`, ocispec.MediaTypeImageIndex, self, 0)
	raw = bytes.Replace(raw, []byte(`"size":0`), fmt.Appendf(nil, `"size":%d`, len(raw)+2), 1)
	f.registry.SetManifest("hostile", "1", ocispec.MediaTypeImageIndex, raw)
	f.registry.SetManifest("hostile", self.String(), ocispec.MediaTypeImageIndex, raw)
	_, err := f.Pull(f.ctx, image.PullRequest{Ref: f.registry.Addr + "/" + hostileName})
	mustFail(t, err, errdefs.IsFailedPrecondition, self.String())
	f.mustBeEmpty()
}

// TestMostLayers: as many layers as an overlay takes can be mounted.
func TestMostLayers(t *testing.T) {
	f := newField(t, true)
	var img rawImage
	for i := range 500 {
		img.layers = append(img.layers, rawLayer{plain: rawTar(reg(fmt.Sprint(i), "x"))})
	}
	id, err := f.bring(t, &img)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := f.Layers(f.ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	at := t.TempDir()
	for _, d := range []string{"merged", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(at, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	merged := filepath.Join(at, "merged")
	err = mount.Overlay(merged, layers, filepath.Join(at, "upper"), filepath.Join(at, "work"), "")
	if errdefs.IsFailedPrecondition(err) && strings.Contains(err.Error(), "before Linux 6.8") {
		return // and that is what it should say there
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(merged, 0) // looked for at the end of the test
	if entries, err := os.ReadDir(merged); err != nil || len(entries) != 500 {
		t.Errorf("%d files, %v", len(entries), err)
	}
}
