package document

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// FuzzDocument: whatever a manifest and a configuration are, the layers that come of them are as many as an overlay takes, and their
// digests can be file names.
func FuzzDocument(f *testing.F) {
	sum := digest.FromString("x").String()
	config := `{"rootfs":{"type":"layers","diff_ids":["` + sum + `"]}}`
	for _, m := range []string{
		`{"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"` + sum + `","size":1},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"` + sum + `","size":7}]}`,
		`{"manifests":[{"digest":"` + sum + `"}]}`, `{"schemaVersion":1,"fsLayers":[]}`, `[]`, `{"layers":"x"}`, `{"mediaType":"application/vnd.oci.image.index.v1+json"}`,
	} {
		f.Add([]byte(m), []byte(config), true)
		f.Add([]byte(m), []byte(`{}`), false)
	}
	f.Fuzz(func(t *testing.T, raw, config []byte, isManifest bool) {
		mediaType := ocispec.MediaTypeImageIndex
		if isManifest {
			mediaType = ocispec.MediaTypeImageManifest
		}
		if err := Check(mediaType, raw); err != nil {
			if !errdefs.IsInvalidArgument(err) {
				t.Fatalf("the error has another class: %v", err)
			}
			return
		}
		if !isManifest {
			return
		}
		var m ocispec.Manifest
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatalf("what was checked is no manifest: %v", err)
		}
		var cfg ocispec.Image
		if json.Unmarshal(config, &cfg) != nil {
			return
		}
		layers, err := Layers(m, cfg)
		if err != nil {
			if !errdefs.IsInvalidArgument(err) {
				t.Fatalf("the error has another class: %v", err)
			}
			return
		}
		if len(layers) > MaxLayers {
			t.Fatalf("%d layers", len(layers))
		}
		for _, l := range layers {
			for _, d := range []string{l.Desc.Digest.Encoded(), l.Diff.Encoded(), l.Chain} {
				if strings.ContainsAny(d, "/\x00") || d == "" {
					t.Fatalf("a digest %q", d)
				}
			}
			if l.Desc.Size < 0 || images.IsIndexType(l.Desc.MediaType) {
				t.Fatalf("%+v", l.Desc)
			}
		}
	})
}
