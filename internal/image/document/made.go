package document

import (
	"encoding/json"

	digest "github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// madeAnnotation marks a manifest that was made by a load or a save: no registry has it, so its digest is no name of the image.
const madeAnnotation = "dev.monopod.image.manifest"

// MakeManifest makes the manifest of an image of which only the configuration and the layers are known.
func MakeManifest(config ocispec.Descriptor, layers []ocispec.Descriptor) ([]byte, ocispec.Descriptor, error) {
	config.MediaType = ocispec.MediaTypeImageConfig
	raw, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: config, Layers: append([]ocispec.Descriptor{}, layers...), Annotations: map[string]string{madeAnnotation: "made"},
	})
	return raw, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromBytes(raw), Size: int64(len(raw))}, err
}

// IsMade says whether a manifest is one of MakeManifest.
func IsMade(m ocispec.Manifest) bool { return m.Annotations[madeAnnotation] != "" }
