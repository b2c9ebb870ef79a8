package fsck

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	digest "github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod.dev/monopod/internal/fsck"
	"monopod.dev/monopod/internal/image/store"
)

// judgeNames follows each name to all that its image is made of.
func (v *verdict) judgeNames() {
	for _, name := range v.names {
		if why := v.nameFault(name.Target); why != "" {
			v.add(fsck.Damage("image", name.Name, why, byPull, fsck.Fix{Action: fsck.DropName, Target: name.Name}))
		}
	}
}

func (v *verdict) nameFault(target ocispec.Descriptor) string {
	if why := v.blobFault("manifest", target.Digest); why != "" {
		return why
	}
	// A pure function of what the provider has; it needs a context for nothing but that.
	manifest, err := images.Manifest(context.Background(), documents{v.facts}, target, platforms.Default()) //nolint:forbidigo // see above
	if err != nil {
		return fmt.Sprintf("its manifest: %v", err)
	}
	config := manifest.Config.Digest
	if why := v.imageFault(config); why != "" {
		return why
	}
	// What no label leads to goes with the next collection.
	reached := reach(v.facts, []leases.Resource{{Type: "content", ID: target.Digest.String()}})
	if !reached.blobs[config] {
		return fmt.Sprintf("nothing holds its configuration %s", config)
	}
	for _, chain := range v.chains(config) {
		if !reached.layers[chain] {
			return fmt.Sprintf("nothing holds its layer %s", chain)
		}
	}
	return ""
}

func (v *verdict) blobFault(what string, d digest.Digest) string {
	if why := v.badBlobs[d]; why != "" {
		return fmt.Sprintf("its %s %s: %s", what, d, why)
	}
	if _, ok := v.blobs[d]; !ok {
		return fmt.Sprintf("its %s %s is missing", what, d)
	}
	return ""
}

// imageFault says what an image lacks, by its id: the digest of its configuration.
func (v *verdict) imageFault(id digest.Digest) string {
	if why := v.blobFault("configuration", id); why != "" {
		return why
	}
	var cfg ocispec.Image
	if err := json.Unmarshal(v.files[id].raw, &cfg); err != nil {
		return fmt.Sprintf("its configuration %s: %v", id, err)
	}
	for i, chain := range v.chains(id) {
		if _, ok := v.layers[chain]; !ok {
			return fmt.Sprintf("its layer %d, %s, is missing", i+1, chain)
		}
		if why := v.badLayers[chain]; why != "" {
			return fmt.Sprintf("its layer %d, %s: %s", i+1, chain, why)
		}
	}
	return ""
}

// chains are the names of an image's layers, the lowest first.
func (v *verdict) chains(id digest.Digest) []string {
	var cfg ocispec.Image
	if json.Unmarshal(v.files[id].raw, &cfg) != nil {
		return nil
	}
	var out []string
	for _, c := range identity.ChainIDs(slices.Clone(cfg.RootFS.DiffIDs)) {
		out = append(out, c.String())
	}
	return out
}

// held is what roots lead to: by the labels of blobs, and from layers to those below.
type held struct {
	blobs   map[digest.Digest]bool
	layers  map[string]bool
	ingests map[string]bool
}

// mark follows all names and leases, as the store's collection does.
func mark(f *facts) held {
	var roots []leases.Resource
	for _, n := range f.names {
		roots = append(roots, leases.Resource{Type: "content", ID: n.Target.Digest.String()})
	}
	for _, l := range f.leases {
		roots = append(roots, l.holds...)
	}
	return reach(f, roots)
}

func reach(f *facts, roots []leases.Resource) held {
	h := held{blobs: map[digest.Digest]bool{}, layers: map[string]bool{}, ingests: map[string]bool{}}
	for _, r := range roots {
		switch {
		case r.Type == "content":
			h.blob(f, digest.Digest(r.ID))
		case r.Type == "ingests":
			h.ingests[r.ID] = true
		case r.Type == "snapshots/"+store.Snapshotter:
			h.layer(f, r.ID)
		}
	}
	return h
}

func (h *held) blob(f *facts, d digest.Digest) {
	rec, known := f.blobs[d]
	if !known || h.blobs[d] {
		return
	}
	h.blobs[d] = true
	for label, to := range rec.labels {
		switch {
		case strings.HasPrefix(label, "containerd.io/gc.ref.content"):
			h.blob(f, digest.Digest(to))
		case label == store.LayersLabel:
			h.layer(f, to)
		}
	}
}

func (h *held) layer(f *facts, name string) {
	for name != "" && !h.layers[name] {
		rec, known := f.layers[name]
		if !known {
			return
		}
		h.layers[name] = true
		name = rec.parent
	}
}

// documents gives the store's documents out as a content provider.
type documents struct{ *facts }

func (d documents) ReaderAt(_ context.Context, desc ocispec.Descriptor) (content.ReaderAt, error) {
	file, ok := d.files[desc.Digest]
	if !ok || file.actual != desc.Digest || file.raw == nil {
		return nil, fmt.Errorf("document %s: %w", desc.Digest, errdefs.ErrNotFound)
	}
	return document{bytes.NewReader(file.raw)}, nil
}

type document struct{ *bytes.Reader }

func (document) Close() error { return nil }

var errNoRoot = errors.New("no directory is named")
