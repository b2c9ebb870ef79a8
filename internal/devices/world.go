package devices

import (
	"slices"
	"sync"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/source"
)

// world is what all sources know at one time. It is never changed.
type world struct {
	*inventory.Snapshot
	parts []*inventory.Snapshot
	by    map[string]*inventory.Snapshot // parts by the name of their source
	of    map[string]source.Source       // by resource
}

// part is what a source knows, of its own resources and of those that are another's now.
func (w *world) part(source string) *inventory.Snapshot {
	if p := w.by[source]; p != nil {
		return p
	}
	return &inventory.Snapshot{}
}

// isForeign says that a grant is by another source than the one that has the resource now.
func (w *world) isForeign(resource string, g resourceGrant) bool {
	src := w.of[resource]
	return src != nil && src.Name() != g.Source
}

// hardware is what a grant holds, as those compare it who choose now: names of two sources have nothing to do with each other.
func (w *world) hardware(resource string, g resourceGrant) []alloc.Hardware {
	all := g.hardware(resource)
	if w.isForeign(resource, g) {
		for i := range all {
			all[i].Name = ""
		}
	}
	return all
}

// awaits says that a source does not know its devices of a resource yet after a start of the node.
func (w *world) awaits(source, resource string) bool {
	_, is := slices.BinarySearch(w.part(source).Awaited, resource)
	return is
}

// knowsNodes says that the devices of a resource are known by their nodes.
func (w *world) knowsNodes(resource string) bool {
	return slices.ContainsFunc(w.Of(resource), func(d inventory.Device) bool { return len(d.Nodes) > 0 })
}

// worlds makes worlds, and keeps the last one as long as no source has a new snapshot.
type worlds struct {
	sources []source.Source // the earlier has a resource that two know

	mu   sync.Mutex
	last *world
}

// named is the source of a name, nil when there is none.
func (w *worlds) named(name string) source.Source {
	for _, s := range w.sources {
		if s.Name() == name {
			return s
		}
	}
	return nil
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
	w := &world{Snapshot: &inventory.Snapshot{}, parts: parts, by: map[string]*inventory.Snapshot{}, of: map[string]source.Source{}}
	for i, part := range parts {
		w.by[sources[i].Name()] = part
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
