package archive

import (
	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

import ()

// dockerManifestFile describes the images of a docker-archive.
const dockerManifestFile = "manifest.json"

// dockerImage is an image in a docker-archive's manifest.json.
type dockerImage struct {
	Config   string   `json:"Config"`
	RepoTags []string `json:"RepoTags"`
	Layers   []string `json:"Layers"`
}

// blobPath is where an OCI layout has a blob.
func blobPath(d digest.Digest) string {
	return ocispec.ImageBlobsDir + "/" + d.Algorithm().String() + "/" + d.Encoded()
}
