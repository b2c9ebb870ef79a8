package unpack

import (
	"context"
	"errors"
	"sync"

	"github.com/containerd/containerd/v2/core/remotes"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Images of different registries may have the same layer, whose digest everybody may know. A pull that had it would hold up the others for as long as its registry likes, which
// whoever may make a pod chooses: one that sends nothing, or drop by drop, would keep the node from an image that somebody else has. So only pulls from one registry wait for each
// other, and go on with each other's downloads. Of two from different ones each brings a layer that both need: who is done first makes it, and the other one takes that and stops.

// Source is where an image comes from: a session with a registry.
type Source interface {
	// Fetch begins to read a blob. The reader can seek. The host that answers is the registry.Served of the context.
	remotes.Fetcher
	// Registry names whom the source asks: pulls from one registry wait for one another.
	Registry() string
	// Document reads a whole document, whose digest and size are right then.
	Document(ctx context.Context, desc ocispec.Descriptor) ([]byte, error)
	// Pause waits before attempt n+1 of something that failed, n from 1.
	Pause(ctx context.Context, n int) error
}

// registryOf is the registry that a source asks; empty: none, the image comes from an archive.
func registryOf(from Source) string {
	if from == nil {
		return ""
	}
	return from.Registry()
}

// errBrought ends an attempt at a layer that a pull from another registry has brought.
var errBrought = errors.New("another pull has brought the layer")

// arrivals tells pulls of the layers that others have brought. The zero value is ready to use.
type arrivals struct {
	mu    sync.Mutex
	waits map[string]map[*arrival]struct{} // by chain id
}

type arrival struct{ stop context.CancelCauseFunc }

// watch ends a context with errBrought when the layer of a chain id is made from now on. forget ends the watch.
func (a *arrivals) watch(ctx context.Context, chain string) (until context.Context, forget func()) {
	until, stop := context.WithCancelCause(ctx)
	w := &arrival{stop}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waits == nil {
		a.waits = map[string]map[*arrival]struct{}{}
	}
	if a.waits[chain] == nil {
		a.waits[chain] = map[*arrival]struct{}{}
	}
	a.waits[chain][w] = struct{}{}
	return until, func() {
		stop(nil)
		a.mu.Lock()
		defer a.mu.Unlock()
		if delete(a.waits[chain], w); len(a.waits[chain]) == 0 {
			delete(a.waits, chain)
		}
	}
}

// tell says that a layer has been made.
func (a *arrivals) tell(chain string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for w := range a.waits[chain] {
		w.stop(errBrought)
	}
}
