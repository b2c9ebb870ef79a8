package topology

import (
	"slices"

	"monopod.dev/monopod/internal/devices/inventory"
)

// Candidates are devices of one resource by how they stand to an affinity. Within each kind they keep the order in which they were given.
type Candidates struct {
	// Aligned are near to one of its nodes, Unaligned only to others.
	Aligned, Unaligned []inventory.Device
	// Unknown do not know their nodes. Where there is nothing to align all are Unknown.
	Unknown []inventory.Device
}

// Split sorts devices by an affinity.
func (a *Aligner) Split(devices []inventory.Device, to Affinity) Candidates {
	if to.Mask == 0 {
		return Candidates{Unknown: devices}
	}
	var c Candidates
	for _, d := range devices {
		switch m := a.maskOf(d.NUMA); {
		case m&to.Mask != 0:
			c.Aligned = append(c.Aligned, d)
		case m != 0:
			c.Unaligned = append(c.Unaligned, d)
		default:
			c.Unknown = append(c.Unknown, d)
		}
	}
	return c
}

// Ordered are all of them in the order in which they are taken.
func (c Candidates) Ordered() []inventory.Device {
	return slices.Concat(c.Aligned, c.Unaligned, c.Unknown)
}

// Offer is what a device plugin that has a preference is asked about when n of the candidates are to be taken: all of must are, and it may choose the
// rest among the available ones, which must is among. So it never takes a device that is not aligned in the place of one that is.
func (c Candidates) Offer(n int) (available, must []inventory.Device) {
	if n < len(c.Aligned) {
		return c.Aligned, nil
	}
	return c.Ordered(), c.Aligned
}
