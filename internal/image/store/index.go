package store

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/distribution/reference"
	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod.dev/monopod/internal/image/imageref"
	"monopod.dev/monopod/internal/kit/ids"
)

// pinnedLabel on a name asks that the image is not removed to free space. It is the label that other CRI runtimes
// built on containerd's packages use.
const pinnedLabel = "io.cri-containerd.pinned"

// Image is one complete image of the store.
type Image struct {
	ID ids.ImageID
	// RepoTags and RepoDigests are its names, sorted: "docker.io/library/busybox:latest" and
	// "docker.io/library/busybox@sha256:<hex>". An image loaded from an archive without a name has neither.
	RepoTags    []string
	RepoDigests []string
	// Size is what the image takes on disk, in bytes, layers shared with other images included.
	Size uint64
	// Config is what a container of this image runs by default.
	Config ocispec.ImageConfig
	// ChainID identifies the whole stack of layers; empty for an image that has none.
	ChainID string
	// Pinned says that the image must not be removed to free space.
	Pinned bool
}

// index is what the store knows of its complete images, in memory: reads of it cost no transaction. It is rebuilt from
// the names in the metadata after every change; only this process makes changes, so it is never behind.
type index struct {
	log *slog.Logger
	// list reads the names, and read what the store has of the image that one points to; an error says what is missing.
	list func(ctx context.Context) ([]images.Image, error)
	read func(ctx context.Context, target ocispec.Descriptor) (*entry, error)

	mu      sync.RWMutex
	byName  map[string]*entry        // by full name, as in the metadata
	targets map[string]digest.Digest // the manifest or index that a full name points to
	byID    map[ids.ImageID]*entry   // by image id
	known   map[digest.Digest]*entry // by the descriptor a name points to; what it holds never changes
}

// entry is one image. Only its names change, and then by a new Image value.
type entry struct {
	image  Image
	chains []string // the snapshots of its layers, bottom first
	layers []string // their directories, topmost first
}

func (x *index) get(ref imageref.Ref) (Image, bool) {
	e := x.entry(ref)
	if e == nil {
		return Image{}, false
	}
	return e.image, true
}

func (x *index) entry(ref imageref.Ref) *entry {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if ref.ID != "" {
		return x.byID[ref.ID]
	}
	return x.byName[ref.Name.String()]
}

func (x *index) byImageID(id ids.ImageID) *entry { return x.entry(imageref.Ref{ID: id}) }

// whole returns the image that all these names point to by way of target already.
func (x *index) whole(names []string, target digest.Digest) (Image, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, n := range names {
		if x.targets[n] != target {
			return Image{}, false
		}
	}
	return x.byName[names[0]].image, true
}

func (x *index) all() []Image {
	x.mu.RLock()
	defer x.mu.RUnlock()
	out := make([]Image, 0, len(x.byID))
	for _, e := range x.byID {
		out = append(out, e.image)
	}
	slices.SortFunc(out, func(a, b Image) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// names returns all names of the image with this id.
func (x *index) names(id ids.ImageID) []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var out []string
	for name, e := range x.byName {
		if e.image.ID == id {
			out = append(out, name)
		}
	}
	return out
}

// rebuild reads the names and makes the index anew. An image that is not whole (a damaged store) is left out and
// logged: it does not take the others down, and pulling it again repairs it.
func (x *index) rebuild(ctx context.Context) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	records, err := x.list(ctx)
	if err != nil {
		return fmt.Errorf("reading the image names: %w", err)
	}
	byName, byID, known := map[string]*entry{}, map[ids.ImageID]*entry{}, map[digest.Digest]*entry{}
	targets := map[string]digest.Digest{}
	for _, rec := range records {
		found := x.known[rec.Target.Digest]
		if found == nil {
			if found, err = x.read(ctx, rec.Target); err != nil {
				x.log.WarnContext(ctx, "image is not whole; pull it again to repair it", "image", rec.Name, "error", err)
				continue
			}
		}
		known[rec.Target.Digest] = found
		e := byID[found.image.ID]
		if e == nil {
			e = &entry{image: found.image, chains: found.chains, layers: found.layers}
			e.image.RepoTags, e.image.RepoDigests, e.image.Pinned = nil, nil, false
			byID[e.image.ID] = e
		}
		byName[rec.Name], targets[rec.Name] = e, rec.Target.Digest
		e.addName(rec)
	}
	for _, e := range byID {
		slices.Sort(e.image.RepoTags)
		slices.Sort(e.image.RepoDigests)
	}
	x.byName, x.targets, x.byID, x.known = byName, targets, byID, known
	return nil
}

func (e *entry) addName(rec images.Image) {
	if rec.Labels[pinnedLabel] == "pinned" {
		e.image.Pinned = true
	}
	if imageref.IsID(rec.Name) {
		return // an image that was loaded without a name; its id stands for one
	}
	named, err := reference.ParseNormalizedNamed(rec.Name)
	if err != nil {
		return
	}
	if _, ok := named.(reference.Digested); ok {
		e.image.RepoDigests = append(e.image.RepoDigests, rec.Name)
	} else {
		e.image.RepoTags = append(e.image.RepoTags, rec.Name)
	}
}
