package devices

import (
	"slices"
	"sync"

	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/source"
)

// world is what all sources know at one time. It is never changed.
type world struct {
	*inventory.Snapshot
	parts []*inventory.Snapshot
	of    map[string]source.Source // by resource
}

// worlds makes worlds, and keeps the last one as long as no source has a new snapshot.
type worlds struct {
	sources []source.Source // the earlier has a resource that two know

	mu   sync.Mutex
	last *world
}

func (w *worlds) now() *world {
	parts := make([]*inventory.Snapshot, len(w.sources))
	for i, s := range w.sources {
		parts[i] = s.Snapshot()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil || !slices.Equal(parts, w.last.parts) {
		w.last = merge(w.sources, parts)
	}
	return w.last
}

// merge gives each resource to the first source that knows it.
func merge(sources []source.Source, parts []*inventory.Snapshot) *world {
	w := &world{Snapshot: &inventory.Snapshot{}, parts: parts, of: map[string]source.Source{}}
	for i, part := range parts {
		mine := map[string]bool{}
		w.Places = append(w.Places, part.Places...)
		w.Problems = append(w.Problems, part.Problems...)
		for _, r := range part.Resources {
			if w.of[r] == nil {
				w.of[r], mine[r] = sources[i], true
				w.Resources = append(w.Resources, r)
			}
		}
		for _, d := range part.Devices {
			if mine[d.Resource] {
				w.Devices = append(w.Devices, d)
			}
		}
	}
	slices.Sort(w.Resources)
	slices.SortFunc(w.Devices, inventory.Compare)
	return w
}
