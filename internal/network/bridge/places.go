package bridge

import (
	"errors"
	"os"
	"sync"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network/links"
)

// places are where the sandboxes are that this process has connected. All methods are safe for concurrent use.
type places struct {
	mu      sync.Mutex
	indexes map[ids.SandboxID]int    // of the host's ends, by sandbox
	paths   map[ids.SandboxID]string // of their network namespaces
}

func newPlaces() *places {
	return &places{indexes: map[ids.SandboxID]int{}, paths: map[ids.SandboxID]string{}}
}

// set notes the index of the host's end and the path of the network namespace.
func (p *places) set(sandboxID ids.SandboxID, index int, path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.indexes[sandboxID], p.paths[sandboxID] = index, path
}

// forget drops what is known of sandboxes.
func (p *places) forget(sandboxID ids.SandboxID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.indexes, sandboxID)
	delete(p.paths, sandboxID)
}

// path is that of the sandbox's network namespace; empty: it is not known.
func (p *places) path(sandboxID ids.SandboxID) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paths[sandboxID]
}

// byIndex are those of these sandboxes that are known, by the index of the host's end.
func (p *places) byIndex(sandboxes map[ids.SandboxID]string) map[int]ids.SandboxID {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := make(map[int]ids.SandboxID, len(sandboxes))
	for id := range sandboxes {
		if index := p.indexes[id]; index != 0 {
			found[index] = id
		}
	}
	return found
}

// inside calls f with a socket of a sandbox's namespace; it does not where the namespace is not known, or gone.
func (p *places) inside(sandboxID ids.SandboxID, f func(*links.Socket) error) error {
	path := p.path(sandboxID)
	if path == "" {
		return nil
	}
	err := links.Inside(path, f)
	if errors.Is(err, os.ErrNotExist) || errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
