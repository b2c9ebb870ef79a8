package alloc

import "monopod.dev/monopod/internal/devices/inventory"

// Hardware is what a grant holds: a device by its name and by what it is.
type Hardware struct {
	Resource, Name string // no name: it is only its nodes
	// Nodes are the host's device nodes that are its own, sorted; none: it is its name.
	Nodes []string
}

type key struct{ resource, name string }

// Held is a set of hardware that somebody has. The zero Held is not usable: see NewHeld.
type Held struct {
	names map[key]bool
	nodes map[string][][]string // by each node, the nodes of who has it
}

// NewHeld returns a set with these in it.
func NewHeld(all ...Hardware) *Held {
	h := &Held{names: map[key]bool{}, nodes: map[string][][]string{}}
	for _, hw := range all {
		h.Add(hw)
	}
	return h
}

// Add puts hardware into the set.
func (h *Held) Add(hw Hardware) {
	if hw.Name != "" {
		h.names[key{hw.Resource, hw.Name}] = true
	}
	for _, n := range hw.Nodes {
		h.nodes[n] = append(h.nodes[n], hw.Nodes)
	}
}

func (h *Held) addDevice(d inventory.Device) { h.Add(Hardware{d.Resource, d.Name, d.Nodes}) }

// Has says that somebody has the device, by one of its names, in its resource.
func (h *Held) Has(d inventory.Device) bool {
	if h.names[key{d.Resource, d.Name}] {
		return true
	}
	for _, a := range d.Aliases {
		if h.names[key{d.Resource, a}] {
			return true
		}
	}
	return false
}

// Excludes says that the device cannot be given: somebody has it, or has hardware that it contains, or that contains it (a card and a
// partition of it, and the name for all of them). Hardware that only overlaps does not exclude: siblings share control nodes.
func (h *Held) Excludes(d inventory.Device) bool {
	return h.Has(d) || h.Overlays(d.Nodes)
}

// Overlays says that somebody has hardware that contains these nodes, or is contained in them.
func (h *Held) Overlays(nodes []string) bool {
	for _, n := range nodes {
		for _, other := range h.nodes[n] {
			if contains(nodes, other) || contains(other, nodes) {
				return true
			}
		}
	}
	return false
}

// contains says that all of b are among a; both are sorted.
func contains(a, b []string) bool {
	i := 0
	for _, s := range b {
		for i < len(a) && a[i] < s {
			i++
		}
		if i == len(a) || a[i] != s {
			return false
		}
	}
	return true
}
