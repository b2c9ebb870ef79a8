package topology

import (
	"cmp"
	"math/bits"
)

// Mask is a set of the host's NUMA nodes. A bit is a node's position among the nodes in the order of their ids, so it means something only to the
// Aligner that made it, and is not to be stored: see Aligner.IDs.
type Mask uint32

// Count is the number of nodes in the set.
func (m Mask) Count() int { return bits.OnesCount32(uint32(m)) }

// IDs are the numbers of the nodes in the set, ascending.
func (a *Aligner) IDs(m Mask) []int {
	var ids []int
	for ; m != 0; m &= m - 1 {
		ids = append(ids, a.ids[lowest(m)])
	}
	return ids
}

// lowest is the position of the first node of a set that is not empty.
func lowest(m Mask) int { return bits.TrailingZeros32(uint32(m)) }

// everyNode is the set of all nodes of the host.
func (a *Aligner) everyNode() Mask { return 1<<len(a.ids) - 1 }

// maskOf is the set of those of the nodes that the host has.
func (a *Aligner) maskOf(ids []int) Mask {
	var m Mask
	for _, id := range ids {
		for pos, have := range a.ids {
			if have == id {
				m |= 1 << pos
			}
		}
	}
	return m
}

// compare orders sets by how well they serve, the best first; want is how many nodes they should have, or less if need be. The order is total.
func (a *Aligner) compare(x, y Mask, want int) int {
	if c := cmp.Compare(a.misfit(x, want), a.misfit(y, want)); c != 0 {
		return c
	}
	return cmp.Or(cmp.Compare(a.spread(x), a.spread(y)), cmp.Compare(x, y))
}

// misfit is 0 for a set of want nodes, grows as a set has fewer, and begins after all of those for a set of more.
func (a *Aligner) misfit(m Mask, want int) int {
	if n := m.Count(); n > want {
		return len(a.ids) + n
	}
	return want - m.Count()
}

// spread is the sum of the distances between the nodes of a set, in both directions and to themselves. Sets of one size are compared by it as by
// its mean. It is 0 where distances do not matter.
func (a *Aligner) spread(m Mask) int {
	if a.distances == nil {
		return 0
	}
	sum := 0
	for from := m; from != 0; from &= from - 1 {
		for to := m; to != 0; to &= to - 1 {
			sum += a.distances[lowest(from)][lowest(to)]
		}
	}
	return sum
}
