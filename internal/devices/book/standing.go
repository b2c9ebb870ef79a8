package book

import (
	"fmt"
	"slices"

	"monopod.dev/monopod/internal/devices/inventory"
)

// Current is the grant as it stands in this boot of the machine. The numbers of device nodes are dealt anew in each boot: a device that was granted in an earlier one
// is what its name says now. (Until a plugin has been asked again, what its answer gave in that boot is the best that is known.)
func (g Grant) Current(w *World, resource, boot string) Grant {
	if g.Boot == boot {
		return g
	}
	devices := slices.Clone(g.Devices)
	for i, had := range devices {
		d, ok := had.Find(w.Part(g.Source).Snapshot, resource)
		switch {
		case g.Boot != "":
			devices[i].Nodes = d.Nodes // none of one that is not there
		case ok && had.Nodes == nil:
			devices[i].Nodes = d.Nodes // the record is of a version that did not note it
		}
	}
	g.Devices = devices
	return g
}

// There is a granted device as its source knows it now, where it is there and is the same hardware. Of a grant as it stands: see Current.
func (d Device) There(w *World, source, resource string) (inventory.Device, *Wait) {
	now, ok := d.Find(w.Part(source).Snapshot, resource)
	if !ok {
		return now, &Wait{resource, fmt.Errorf("device %q, which this container was granted, is not there any more: bring it back, or delete the pod%s", d.Name, Remarks(w, resource))}
	}
	if !slices.Equal(d.Nodes, now.Nodes) {
		return now, &Wait{resource, fmt.Errorf("%s: device %q is %v now, and was %v when this container was granted it: delete the pod, or restore the definition", now.Origin, d.Name, now.Nodes, d.Nodes)}
	}
	return now, nil
}

// Lasts says that the grant holds in this boot whatever is known of its devices now.
func (g Grant) Lasts(w *World, boot string) bool {
	return g.Counted > 0 || w.Part(g.Source).Lasts && g.AnsweredIn(boot)
}
