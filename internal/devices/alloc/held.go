package alloc

import (
	"slices"

	"monopod.dev/monopod/internal/devices/inventory"
)

// Hardware is what a grant holds: a device by its name and by what it is.
type Hardware struct {
	Resource, Name string // no name: it is only its nodes
	// ShareOf is the name of the device of which this is a share: it leaves the other shares to others.
	ShareOf string
	// Nodes are the host's device nodes that are its own, sorted; none: it is its name.
	Nodes []string
}

type key struct{ resource, name string }

// holding is who has a node.
type holding struct {
	nodes  []string
	shared key // the device of which it is a share; none: it is nobody else's
}

// Held is a set of hardware that somebody has. The zero Held is not usable: see NewHeld.
type Held struct {
	names  map[key]bool // also of those that are shares
	alone  map[key]bool // without shares
	shares map[key]int  // how many, by the device
	nodes  map[string][]holding
}

// NewHeld returns a set with these in it.
func NewHeld(all ...Hardware) *Held {
	h := &Held{names: map[key]bool{}, alone: map[key]bool{}, shares: map[key]int{}, nodes: map[string][]holding{}}
	for _, hw := range all {
		h.Add(hw)
	}
	return h
}

// Add puts hardware into the set.
func (h *Held) Add(hw Hardware) {
	who := holding{nodes: hw.Nodes}
	if hw.Name != "" {
		h.names[key{hw.Resource, hw.Name}] = true
		if hw.ShareOf == "" {
			h.alone[key{hw.Resource, hw.Name}] = true
		} else {
			who.shared = key{hw.Resource, hw.ShareOf}
			h.shares[who.shared]++
		}
	}
	for _, n := range hw.Nodes {
		h.nodes[n] = append(h.nodes[n], who)
	}
}

func (h *Held) addDevice(d inventory.Device) { h.Add(Hardware{d.Resource, d.Name, d.ShareOf, d.Nodes}) }

// Has says that somebody has the device, by one of its names, in its resource; or a share of it, or, of a share, the whole device.
func (h *Held) Has(d inventory.Device) bool {
	if d.ShareOf != "" && h.alone[key{d.Resource, d.ShareOf}] {
		return true
	}
	has := func(name string) bool {
		k := key{d.Resource, name}
		return h.names[k] || d.ShareOf == "" && h.shares[k] > 0
	}
	return has(d.Name) || slices.ContainsFunc(d.Aliases, has)
}

// Excludes says that the device cannot be given: somebody has it, or has hardware that it contains, or that contains it (a card and a
// partition of it, and the name for all of them). Hardware that only overlaps does not exclude: siblings share control nodes. Nor do the
// shares of one device exclude each other.
func (h *Held) Excludes(d inventory.Device) bool {
	if h.Has(d) {
		return true
	}
	var shared key
	if d.ShareOf != "" {
		shared = key{d.Resource, d.ShareOf}
	}
	return h.overlays(d.Nodes, shared)
}

// Overlays says that somebody has hardware that contains these nodes, or is contained in them.
func (h *Held) Overlays(nodes []string) bool { return h.overlays(nodes, key{}) }

func (h *Held) overlays(nodes []string, shared key) bool {
	for _, n := range nodes {
		for _, other := range h.nodes[n] {
			if shared != (key{}) && other.shared == shared {
				continue
			}
			if contains(nodes, other.nodes) || contains(other.nodes, nodes) {
				return true
			}
		}
	}
	return false
}

// sharers is how many have a share of the device of which d is one.
func (h *Held) sharers(d inventory.Device) int { return h.shares[key{d.Resource, d.ShareOf}] }

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
