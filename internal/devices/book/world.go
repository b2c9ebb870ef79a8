package book

import (
	"slices"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/inventory"
)

// Part is what one source of devices knows.
type Part struct {
	// Source is its name, as records have it.
	Source string
	*inventory.Snapshot
	// Advises: it is asked which of its devices it prefers, before any of them is chosen.
	Advises bool
	// Lasts: what it has answered holds for as long as the machine runs, whatever has become of its devices meanwhile.
	Lasts bool
}

// World is what all sources know at one time. It is never changed.
type World struct {
	// Snapshot has each resource, and its devices, of the source that has it: the first that knows it.
	*inventory.Snapshot
	parts map[string]Part   // by the name of their source
	owner map[string]string // of resources, the source
}

// NewWorld gives each resource to the first part that knows it.
func NewWorld(parts ...Part) *World {
	w := &World{Snapshot: &inventory.Snapshot{}, parts: map[string]Part{}, owner: map[string]string{}}
	for _, part := range parts {
		w.parts[part.Source] = part
		mine := map[string]bool{}
		w.Places = append(w.Places, part.Places...)
		w.Problems = append(w.Problems, part.Problems...)
		for _, r := range part.Resources {
			if w.owner[r] == "" {
				w.owner[r], mine[r] = part.Source, true
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

// Owner is the name of the source that has the resource now; empty: none has.
func (w *World) Owner(resource string) string { return w.owner[resource] }

// Part is what a source knows, of its own resources and of those that are another's now; of a source that there is not, nothing.
func (w *World) Part(source string) Part {
	p, ok := w.parts[source]
	if !ok {
		p.Snapshot = &inventory.Snapshot{}
	}
	return p
}

// Awaits says that a source does not know its devices of a resource yet after a start of the node.
func (w *World) Awaits(source, resource string) bool {
	_, is := slices.BinarySearch(w.Part(source).Awaited, resource)
	return is
}

// isForeign says that a grant is by another source than the one that has the resource now.
func (w *World) isForeign(resource string, g Grant) bool {
	owner := w.owner[resource]
	return owner != "" && owner != g.Source
}

// hardware is what a grant holds, as those compare it who choose now: names of two sources have nothing to do with each other.
func (w *World) hardware(resource string, g Grant) []alloc.Hardware {
	all := g.hardware(resource)
	if w.isForeign(resource, g) {
		for i := range all {
			all[i].Name = ""
		}
	}
	return all
}

// knowsNodes says that the devices of a resource are known by their nodes.
func (w *World) knowsNodes(resource string) bool {
	return slices.ContainsFunc(w.Of(resource), func(d inventory.Device) bool { return len(d.Nodes) > 0 })
}
