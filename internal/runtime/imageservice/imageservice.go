// Package imageservice is a gRPC service beside CRI's, on the same socket: what people do with a node's images and CRI cannot.
//
//	service monopod.image.v1.Images {
//	  rpc List(BytesValue) returns (BytesValue);           // ListRequest  -> []Image
//	  rpc Inspect(BytesValue) returns (BytesValue);        // InspectRequest -> Details
//	  rpc Remove(BytesValue) returns (BytesValue);         // RemoveRequest -> Removed
//	  rpc Prune(BytesValue) returns (BytesValue);          // PruneRequest -> Pruned
//	  rpc Pull(BytesValue) returns (stream BytesValue);    // PullRequest -> PullEvent, PullEvent, ...; the last one has the image
//	  rpc Load(stream BytesValue) returns (BytesValue);    // LoadRequest, then the archive's bytes in order -> []Loaded
//	  rpc Save(BytesValue) returns (stream BytesValue);    // SaveRequest -> the archive's bytes in order
//	}
//
// BytesValue is google.protobuf.BytesValue. It holds the JSON of the named type of this package, but where it holds an archive's bytes.
// A field that one side does not know is passed over, so that a command and a runtime of different versions understand each other.
// The description is written by hand: nothing needs to be generated. Errors have gRPC's codes, as CRI's have.
package imageservice

import (
	"context"
	"encoding/json"
	"io"
	"time"
)

// chunk is how many bytes of an archive go into one message.
const chunk = 256 << 10

// Service is what the runtime does. Its errors are of the classes of github.com/containerd/errdefs.
type Service interface {
	List(ctx context.Context, req ListRequest) ([]Image, error)
	Inspect(ctx context.Context, req InspectRequest) (Details, error)
	Remove(ctx context.Context, req RemoveRequest) (Removed, error)
	Prune(ctx context.Context, req PruneRequest) (Pruned, error)
	// Pull calls progress now and then, from one goroutine at a time, and not after it has returned.
	Pull(ctx context.Context, req PullRequest, progress func([]LayerProgress)) (Image, error)
	Load(ctx context.Context, req LoadRequest, archive io.Reader) ([]Loaded, error)
	Save(ctx context.Context, req SaveRequest, archive io.Writer) error
}

// ListRequest asks for all images.
type ListRequest struct{}

// Image is an image of the node.
type Image struct {
	ID string `json:"id"`
	// Tags and Digests are its names.
	Tags    []string `json:"tags"`
	Digests []string `json:"digests"`
	// Size is what it takes on disk, in bytes, with layers that it shares.
	Size     uint64    `json:"size"`
	Created  time.Time `json:"created,omitzero"`
	Platform string    `json:"platform"`
	// Pinned says that it is not removed to free space.
	Pinned bool `json:"pinned"`
	// Users are the containers that hold it.
	Users []User `json:"users"`
}

// User is a container that holds an image.
type User struct {
	Container string `json:"container"`
	// The names are empty for a container that is being made or removed.
	Name      string `json:"name,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	State     string `json:"state,omitempty"`
}

// InspectRequest names an image: an id, the begin of one, a tag or a digest.
type InspectRequest struct {
	Image string `json:"image"`
}

// Details is all that is known of an image.
type Details struct {
	Image
	Manifest  string          `json:"manifest"` // the digest of what its names point to
	MediaType string          `json:"mediaType"`
	Layers    []Layer         `json:"layers"` // the lowest first
	Config    json.RawMessage `json:"config"` // the image's configuration file, as it is
}

// Layer is a layer of an image.
type Layer struct {
	// Digest and PackedSize are those of the layer as registries have it; it is not kept.
	Digest     string `json:"digest"`
	PackedSize int64  `json:"packedSize"`
	DiffID     string `json:"diffID"`
	ChainID    string `json:"chainID"`
	Size       int64  `json:"size"` // on disk
	// Recorded says that the layer can be saved.
	Recorded bool `json:"recorded"`
}

// RemoveRequest names images. A tag or a digest is taken from its image, which goes with its last tag; an id removes the image with
// all its names.
type RemoveRequest struct {
	Images []string `json:"images"`
	// Force removes what containers use, too: they keep its layers until they are removed.
	Force bool `json:"force"`
	// Missing says that an image that is not there is no error.
	Missing bool `json:"missing"`
}

// Removed tells what was removed.
type Removed struct {
	Untagged []string `json:"untagged"` // names
	IDs      []string `json:"ids"`      // images
	Freed    uint64   `json:"freed"`    // bytes
}

// PruneRequest says what to remove of the images that no container uses: those without a tag, or all.
type PruneRequest struct {
	All    bool `json:"all"`
	DryRun bool `json:"dryRun"`
}

// Pruned tells what was removed, or would be.
type Pruned struct {
	Images []Image `json:"images"`
	Freed  uint64  `json:"freed"` // bytes
}

// PullRequest names an image, and who asks for it.
type PullRequest struct {
	Image    string `json:"image"`
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
}

// PullEvent tells how far a pull is; the last one has the image.
type PullEvent struct {
	Layers []LayerProgress `json:"layers,omitempty"`
	Image  *Image          `json:"image,omitempty"`
}

// LayerProgress is how far one layer is. The states are those of internal/image: waiting, downloading, unpacking, verifying, done, exists.
type LayerProgress struct {
	Digest string `json:"digest"`
	State  string `json:"state"`
	Done   int64  `json:"done"` // bytes of the compressed layer
	Total  int64  `json:"total"`
}

// LoadRequest says how to load an archive.
type LoadRequest struct {
	// Name is what the archive's only image is to be called.
	Name string `json:"name,omitempty"`
}

// Loaded is an image of an archive.
type Loaded struct {
	ID    string   `json:"id"`
	Names []string `json:"names"`
}

// SaveRequest names images.
type SaveRequest struct {
	Images []string `json:"images"`
}
