package cdi

import (
	"fmt"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/internal/devices/inventory"
)

// maxFaults bounds what is told of one device: a card may have a hundred nodes.
const maxFaults = 3

// look completes the devices with what depends on the host: their real nodes and the NUMA nodes of these, and whether all nodes are there as the specs say, those
// of the file's edits included, because each device brings them along. It returns a new catalog.
func (c *catalog) look(h cdispec.Host, id *identifier, near *locality) *catalog {
	next := *c
	snapshot := *c.snapshot
	units := slices.Clone(c.units)
	faults := map[*specs.DeviceNode]*cdispec.Drift{} // a file's own nodes come with each of its devices
	next.paths = nil
	check := func(n *specs.DeviceNode) *cdispec.Drift {
		f, ok := faults[n]
		if !ok {
			f = h.CheckNode(n)
			faults[n] = f
			next.paths = append(next.paths, cdispec.HostPath(n), id.resolve(cdispec.HostPath(n)))
		}
		return f
	}
	for i := range units {
		d := &units[i]
		e := c.byName[inventory.CDIName(d.Resource, d.Name)]
		var found []string
		for _, n := range slices.Concat(e.Edits.DeviceNodes, e.File.Spec.ContainerEdits.DeviceNodes) {
			f := check(n)
			if f == nil {
				continue
			}
			d.Absent = d.Absent || f.Missing
			if text := f.Path + " " + f.Detail; !slices.Contains(found, text) {
				found = append(found, text)
			}
		}
		d.Nodes, d.Unhealthy = id.nodes(e), unhealthy(found)
		d.SharedNodes = id.sharedNodes(e)
		d.NUMA = near.of(d.Nodes, e.Edits)
	}
	snapshot.Devices = split(units, func(d inventory.Device) int { return c.shares[inventory.CDIName(d.Resource, d.Name)] })
	slices.Sort(next.paths)
	next.paths = slices.Compact(next.paths)
	next.snapshot = &snapshot
	return &next
}

func unhealthy(faults []string) string {
	if more := len(faults) - maxFaults; more > 0 {
		faults = append(faults[:maxFaults:maxFaults], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(faults, "; ")
}

// sameHealth says whether two snapshots of the same specs agree on what the host has.
func sameHealth(a, b *inventory.Snapshot) bool {
	return slices.EqualFunc(a.Devices, b.Devices, func(x, y inventory.Device) bool {
		return x.Unhealthy == y.Unhealthy && x.Absent == y.Absent && slices.Equal(x.Nodes, y.Nodes)
	})
}
