// Package alloc chooses which devices a container gets. It is pure: the same pool and request give the same answer, on
// whatever machine and in whatever order the devices were found.
package alloc

import (
	"fmt"
	"slices"

	"monopod.dev/monopod/internal/devices/inventory"
)

// Pool is one resource as it stands.
type Pool struct {
	// Devices are what the resource has, in any order.
	Devices []inventory.Device
	// Taken are the names, first names or aliases, that are granted to others. A name that no device has any more is
	// ignored: what is gone cannot be given twice.
	Taken []string
	// Unfit are the names of devices that must not be given now, with the reason.
	Unfit map[string]string
}

// Request is what a container asks of one resource.
type Request struct {
	Count int
	// Prefer are names to take first, the most wanted first; a name that is not free is passed over.
	Prefer []string
}

// Shortage is the error of Choose: fewer devices can be given than were asked for.
type Shortage struct {
	Want, Have, Taken int
	// Unfit are the names of the devices that are left out because something is wrong with them, in order.
	Unfit []string
}

// Error tells the numbers.
func (s *Shortage) Error() string {
	text := fmt.Sprintf("%d wanted, %d free (of %d, %d in use", s.Want, s.Have, s.Have+s.Taken+len(s.Unfit), s.Taken)
	if len(s.Unfit) > 0 {
		text += fmt.Sprintf(", %d unfit", len(s.Unfit))
	}
	return text + ")"
}

// Choose picks the names of Count devices: first what the request prefers, then in the natural order of names. The
// error is a *Shortage.
func Choose(pool Pool, req Request) ([]string, error) {
	free, short := split(pool)
	if req.Count > len(free) {
		short.Want, short.Have = req.Count, len(free)
		return nil, &short
	}
	chosen := make([]string, 0, req.Count)
	for _, name := range req.Prefer {
		i := slices.IndexFunc(free, func(d inventory.Device) bool { return d.Is(name) })
		if i >= 0 && len(chosen) < req.Count {
			chosen = append(chosen, free[i].Name)
			free = slices.Delete(free, i, i+1)
		}
	}
	for _, d := range free {
		if len(chosen) < req.Count {
			chosen = append(chosen, d.Name)
		}
	}
	return chosen, nil
}

// split returns the devices that may be given, in order, and counts the others.
func split(pool Pool) (free []inventory.Device, short Shortage) {
	units := slices.Clone(inventory.Units(pool.Devices))
	slices.SortFunc(units, func(a, b inventory.Device) int { return inventory.CompareNames(a.Name, b.Name) })

	isTaken := func(d inventory.Device) bool { return slices.ContainsFunc(pool.Taken, d.Is) }
	// A grant of all the hardware at once, from the time when it had no finer names, leaves nothing for anybody else.
	whole := slices.ContainsFunc(pool.Devices, func(d inventory.Device) bool { return d.Whole && isTaken(d) })
	for _, d := range units {
		switch {
		case whole || isTaken(d):
			short.Taken++
		case pool.Unfit[d.Name] != "":
			short.Unfit = append(short.Unfit, d.Name)
		default:
			free = append(free, d)
		}
	}
	return free, short
}
