// Package alloc chooses which devices the containers of a pod get. It is pure: the same pool and the same steps give the same answer, on
// whatever machine and in whatever order the devices were found.
//
// An Allocation goes through the containers of a pod in the order in which they start. For each resource that one asks for, Candidates says
// what it may have; whoever has a preference among these gives it to Take as advice, which Take follows if it can be followed, and no
// further. Devices of an init container pass on to those that start after its end. Of a device that is shared a container gets one share, and of
// several such devices that which the fewest have.
package alloc

import (
	"cmp"
	"fmt"
	"slices"

	"monopod.dev/monopod/internal/devices/inventory"
)

// Role is when a container of a pod runs.
type Role string

const (
	// Main containers run side by side, after the others.
	Main Role = "main"
	// Init containers run one after the other, each to its end: what one had, those after it can have.
	Init Role = "init"
	// Sidecar containers (restartable init containers) start among the init containers, and go on beside the others.
	Sidecar Role = "sidecar"
)

// Pool is what there is to choose from.
type Pool struct {
	// Devices are the devices of a resource, in the order in which they are to be chosen.
	Devices func(resource string) []inventory.Device
	// Held is what others have.
	Held *Held
	// Unfit says why a device must not be given now; empty: it may.
	Unfit func(d inventory.Device) string
	// Withheld is how many devices of a resource are not to be given, whichever they are; nil: none.
	Withheld func(resource string) int
}

// Candidates are what a container may have of a resource.
type Candidates struct {
	// Handed are the devices of init containers before it. They are taken first.
	Handed []inventory.Device
	// Free are nobody's.
	Free []inventory.Device
	// Taken is the number of those that others have, Unfit are the names of those that cannot be given now.
	Taken int
	Unfit []string
}

// Shortage is the error of Take: fewer devices can be given than were asked for.
type Shortage struct {
	Resource          string
	Want, Have, Taken int
	// Alike is how many more would be free, but are the same hardware as those that are counted.
	Alike int
	// Unfit are the names of the devices that are left out because something is wrong with them, in order.
	Unfit []string
}

// Error tells the numbers.
func (s *Shortage) Error() string {
	text := fmt.Sprintf("%d wanted, %d free (of %d, %d in use", s.Want, s.Have, s.Have+s.Alike+s.Taken+len(s.Unfit), s.Taken)
	if s.Alike > 0 {
		text += fmt.Sprintf(", %d of the same hardware", s.Alike)
	}
	if len(s.Unfit) > 0 {
		text += fmt.Sprintf(", %d unfit", len(s.Unfit))
	}
	return text + ")"
}

// Allocation is the choice for one pod, as far as it has come.
type Allocation struct {
	pool   Pool
	own    *Held // what the pod has been given
	handed map[string][]inventory.Device
	order  func([]inventory.Device) []inventory.Device
}

// Begin begins the choice for a pod.
func Begin(pool Pool) *Allocation {
	return &Allocation{pool: pool, own: NewHeld(), handed: map[string][]inventory.Device{}}
}

// OrderBy sets how candidates are ordered from now on. The function is given those that are handed down and those that are free apart, and
// returns them in the order in which they are to be chosen; nil: as they are in the pool.
func (a *Allocation) OrderBy(order func([]inventory.Device) []inventory.Device) { a.order = order }

// Candidates says what the next container may have of a resource.
func (a *Allocation) Candidates(resource string) Candidates {
	devices := a.pool.Devices(resource)
	c := Candidates{Handed: a.handed[resource]}
	// A grant of all the hardware at once leaves nothing for anybody else, whatever is known of its nodes.
	whole := slices.ContainsFunc(devices, func(d inventory.Device) bool { return d.Whole && a.pool.Held.Has(d) })
	for _, d := range inventory.Units(devices) {
		switch {
		case whole || a.pool.Held.Excludes(d):
			c.Taken++
		case a.own.Excludes(d):
			if !slices.ContainsFunc(c.Handed, func(h inventory.Device) bool { return h.Name == d.Name }) {
				c.Taken++
			}
		case d.Unhealthy != "" || a.pool.Unfit(d) != "":
			c.Unfit = append(c.Unfit, d.Name)
		default:
			c.Free = append(c.Free, d)
		}
	}
	if slices.ContainsFunc(c.Free, func(d inventory.Device) bool { return d.ShareOf != "" }) {
		sharers := func(d inventory.Device) int { return a.pool.Held.sharers(d) + a.own.sharers(d) }
		slices.SortStableFunc(c.Free, func(x, y inventory.Device) int { return cmp.Compare(sharers(x), sharers(y)) })
	}
	if a.order != nil {
		c.Handed, c.Free = a.order(c.Handed), a.order(c.Free)
	}
	if a.pool.Withheld != nil {
		left := max(0, len(c.Free)-a.pool.Withheld(resource))
		c.Taken += len(c.Free) - left
		c.Free = c.Free[:left]
	}
	return c
}

// Take gives a container n devices of a resource: those that are handed down, then those of the advice, then in order. Advice that does not
// fit (another number, a device that is not a candidate, without what is handed down) is not followed at all. The error is a *Shortage.
func (a *Allocation) Take(role Role, resource string, n int, advice []string) ([]inventory.Device, error) {
	c := a.Candidates(resource)
	must := c.Handed[:min(n, len(c.Handed))]
	chosen := a.follow(c, must, n, advice)
	if chosen == nil {
		chosen = a.pick(must, c.Free, n)
	}
	if len(chosen) < n {
		return nil, &Shortage{Resource: resource, Want: n, Have: len(chosen), Alike: len(c.Handed) + len(c.Free) - len(chosen), Taken: c.Taken, Unfit: c.Unfit}
	}
	a.Given(role, resource, chosen)
	return chosen, nil
}

// pick takes n devices: all of must, and of the free ones those that do not exclude each other. Shares of one device do here.
func (a *Allocation) pick(must, free []inventory.Device, n int) []inventory.Device {
	chosen := slices.Clone(must)
	if len(chosen) == n {
		return chosen
	}
	mine := NewHeld()
	for _, d := range must {
		mine.addDevice(entire(d))
	}
	for _, d := range free {
		if mine.Excludes(entire(d)) {
			continue
		}
		mine.addDevice(entire(d))
		if chosen = append(chosen, d); len(chosen) == n {
			break
		}
	}
	return chosen
}

// entire is the device of which d is a share.
func entire(d inventory.Device) inventory.Device {
	if d.ShareOf != "" {
		d.Name, d.Aliases, d.ShareOf = d.ShareOf, nil, ""
	}
	return d
}

// follow returns the devices of the advice, or nil.
func (a *Allocation) follow(c Candidates, must []inventory.Device, n int, advice []string) []inventory.Device {
	if len(advice) != n || n == 0 {
		return nil
	}
	var advised []inventory.Device
	for _, name := range advice {
		is := func(d inventory.Device) bool { return d.Is(name) }
		switch i, j := slices.IndexFunc(must, is), slices.IndexFunc(c.Free, is); {
		case i >= 0: // it is in the choice anyhow
		case j < 0:
			return nil
		default:
			advised = append(advised, c.Free[j])
		}
	}
	if chosen := a.pick(must, advised, n); len(chosen) == n {
		return chosen
	}
	return nil
}

// Given notes what a container has.
func (a *Allocation) Given(role Role, resource string, devices []inventory.Device) {
	for _, d := range devices {
		a.own.addDevice(d)
		at := slices.IndexFunc(a.handed[resource], func(h inventory.Device) bool { return h.Name == d.Name })
		switch {
		case role == Init && at < 0:
			a.handed[resource] = append(a.handed[resource], d)
		case role != Init && at >= 0: // it goes on having it
			a.handed[resource] = slices.Delete(slices.Clone(a.handed[resource]), at, at+1)
		}
	}
}
