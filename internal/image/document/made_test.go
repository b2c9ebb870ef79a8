package document

import (
	"encoding/json"
	"testing"

	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// A manifest that is made is one, is known again, and is the same each time.
func TestMakeManifest(t *testing.T) {
	config := ocispec.Descriptor{Digest: digest.FromString("c"), Size: 1}
	layers := []ocispec.Descriptor{{MediaType: ocispec.MediaTypeImageLayer, Digest: digest.FromString("l"), Size: 2}}
	raw, desc, err := MakeManifest(config, layers)
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(desc.MediaType, raw); err != nil || desc.Digest != digest.FromBytes(raw) || desc.Size != int64(len(raw)) {
		t.Errorf("%+v: %v", desc, err)
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(raw, &m); err != nil || !IsMade(m) || m.Config.Digest != config.Digest || len(m.Layers) != 1 {
		t.Errorf("%+v: %v", m, err)
	}
	if _, again, _ := MakeManifest(config, layers); again.Digest != desc.Digest {
		t.Errorf("made again it is %s, before %s", again.Digest, desc.Digest)
	}
	if IsMade(ocispec.Manifest{}) {
		t.Error("a manifest of anybody is one that was made here")
	}
}
