package topology

import (
	"slices"

	"monopod.dev/monopod/internal/devices/inventory"
)

// Request is what is asked of one resource, and how that stands.
type Request struct {
	Resource string
	Count    int
	// Devices are all that the resource has, also those that are taken or unhealthy. Those that are Whole count only when there are no others.
	Devices []inventory.Device
	// Available are those of them that are free and healthy.
	Available []inventory.Device
	// HandedDown are those of them that an earlier container of the pod leaves to this one. They are taken before any other, and none of them is
	// among Available.
	HandedDown []inventory.Device
}

// Hint is a set of NUMA nodes from which a request can be met.
type Hint struct {
	Mask Mask
	// Preferred: with all devices of the resource free and healthy, no smaller set would do.
	Preferred bool
}

// Hints are all that one request can be met from.
type Hints struct {
	Resource string
	Count    int
	// Any: the request has no preference, whatever else is said.
	Any bool
	// Sets are the hints, in ascending order of their masks. None, and not Any: there are not enough devices that know their nodes.
	Sets []Hint
}

// Hints weighs every set of nodes that devices of the resource are near.
func (a *Aligner) Hints(req Request) Hints {
	h := Hints{Resource: req.Resource, Count: req.Count}
	masks, near := a.masksOf(units(req.Devices))
	if a.Policy() == None || req.Count <= 0 || near == 0 {
		h.Any = true
		return h
	}
	var (
		all       = tally(masks, near)
		available = a.tallyOf(req.Available, near)
		handed    = a.tallyOf(req.HandedDown, near)
		size      = near.Count() // of the smallest set that could do
		sets      = subsets(near)
	)
	for i, m := range sets {
		if all.near(i) >= req.Count {
			size = min(size, m.Count())
		}
	}
	// What was handed down is taken first, so as much of it as will be taken has to be there.
	must := min(req.Count, handed.near(len(sets)-1))
	h.Sets = make([]Hint, 0, len(sets))
	for i, m := range sets {
		if have := handed.near(i); have >= must && have+available.near(i) >= req.Count {
			h.Sets = append(h.Sets, Hint{Mask: m, Preferred: m.Count() == size})
		}
	}
	return h
}

// units are the devices that count: see inventory.Units, which would copy them all.
func units(devices []inventory.Device) []inventory.Device {
	if slices.ContainsFunc(devices, func(d inventory.Device) bool { return d.Whole }) {
		return inventory.Units(devices)
	}
	return devices
}

// masksOf are the nodes that each of the devices is near, and all of these together.
func (a *Aligner) masksOf(devices []inventory.Device) (masks []Mask, union Mask) {
	masks = make([]Mask, len(devices))
	for i := range devices {
		masks[i] = a.maskOf(devices[i].NUMA)
		union |= masks[i]
	}
	return masks, union
}

// subsets are all subsets of a set, each at the index that packed gives it; they are in ascending order.
func subsets(of Mask) []Mask {
	all := make([]Mask, 1<<of.Count())
	bit := 1
	for rest := of; rest != 0; rest &= rest - 1 {
		for i := range bit {
			all[bit+i] = all[i] | 1<<lowest(rest)
		}
		bit <<= 1
	}
	return all
}

// packed is the index in subsets(of) of those nodes of a set that are in of.
func packed(m, of Mask) int {
	index, bit := 0, 1
	for ; of != 0 && m != 0; of &= of - 1 {
		if m>>lowest(of)&1 != 0 {
			index |= bit
		}
		bit <<= 1
	}
	return index
}

// counts tells how many devices are near to one of a set's nodes: it holds, for each set, how many are near to no node outside of it.
type counts []int32

func (a *Aligner) tallyOf(devices []inventory.Device, near Mask) counts {
	masks, _ := a.masksOf(devices)
	return tally(masks, near)
}

// tally counts devices by the nodes that they are near. The sets are those of subsets(near), and nodes beside these are ignored.
func tally(masks []Mask, near Mask) counts {
	c := make(counts, 1<<near.Count())
	for _, m := range masks {
		c[packed(m, near)]++
	}
	// The sum over the subsets of each set, one node at a time.
	for bit := 1; bit < len(c); bit <<= 1 {
		for i := range c {
			if i&bit != 0 {
				c[i] += c[i^bit]
			}
		}
	}
	return c
}

// near is how many devices are near to at least one node of the set at an index: all but those that are near to none of it.
func (c counts) near(index int) int {
	full := len(c) - 1
	return int(c[full] - c[full^index])
}
