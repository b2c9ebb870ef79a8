package report

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"monopod.dev/monopod/internal/devices"
	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/inventory"
)

type key struct{ resource, name string }

// New makes a list of what the manager knows. A grant may be of a device that is not among all, or that is there under another name: so it is
// told under the first name of the device, and what nobody knows is told as missing.
func New(all []devices.DeviceStatus, grants []devices.GrantRecord, problems []devices.Problem) List {
	l := List{Devices: make([]Device, 0, len(all)), Problems: make([]Problem, 0, len(problems))}
	at := make(map[key]int, len(all))
	for _, d := range all {
		i := len(l.Devices)
		at[key{d.Resource, d.Name}] = i
		for _, alias := range d.Aliases {
			if d.ShareOf == "" || d.ShareOf == d.Name {
				at[key{d.Resource, alias}] = i
			}
		}
		l.Devices = append(l.Devices, device(d))
	}
	held := map[int][]alloc.Hardware{} // by the place of the device
	markWhole(l.Devices)
	for _, g := range grants {
		holder := Holder{Namespace: g.PodNamespace, Pod: g.PodName, PodUID: g.PodUID, Container: g.Container, Role: string(g.Role), GrantedAt: g.GrantedAt}
		for _, d := range g.Devices {
			k := key{d.Resource, d.Name}
			i, ok := at[k]
			if !ok && d.ShareOf != "" { // it is shared less than it was
				i, ok = at[key{d.Resource, d.ShareOf}]
			}
			if !ok {
				i = len(l.Devices)
				at[k] = i
				missing := Device{Resource: d.Resource, Name: d.Name, Health: Missing, Source: cmp.Or(d.Origin, d.Source), Nodes: d.Nodes, Holders: []Holder{}, Reason: "it was granted, and nothing defines it any more"}
				if _, since, told := strings.Cut(d.Why, ": "); told { // what became of it
					missing.Reason += ": " + since
				}
				switch {
				case d.Awaited:
					missing.Reason = d.Why
				case d.Health == devices.Healthy, d.Health == devices.Unhealthy: // the resource is another source's now
					missing.Health, missing.Reason = Health(d.Health), d.Why
				}
				l.Devices = append(l.Devices, missing)
			}
			l.Devices[i].Nodes = union(l.Devices[i].Nodes, d.Given)
			l.Devices[i].SharedNodes = union(l.Devices[i].SharedNodes, d.Shared)
			if l.Devices[i].Reason == "" {
				l.Devices[i].Reason = d.Why // such as that its name is other hardware's now
			}
			l.Devices[i].Holders = append(l.Devices[i].Holders, holder)
			held[i] = append(held[i], alloc.Hardware{Resource: d.Resource, Name: l.Devices[i].Name, ShareOf: d.ShareOf, Nodes: l.Devices[i].Nodes})
		}
	}
	for i := range l.Devices {
		slices.SortStableFunc(l.Devices[i].Holders, compareHolders)
	}
	exclude(l.Devices, all, held)
	slices.SortStableFunc(l.Devices, func(a, b Device) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), inventory.CompareNames(a.Name, b.Name))
	})
	for _, p := range problems {
		l.Problems = append(l.Problems, Problem{Resource: p.Resource, Paths: p.Paths, Message: p.Message})
	}
	return l
}

// union is both, sorted; neither is changed.
func union(a, b []string) []string {
	if len(b) == 0 {
		return a
	}
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

func device(d devices.DeviceStatus) Device {
	r := Device{Resource: d.Resource, Name: d.Name, Aliases: d.Aliases, ShareOf: d.ShareOf, Whole: d.Whole, Health: Healthy, NUMA: d.NUMA, Source: d.Origin, Nodes: d.Nodes, SharedNodes: d.SharedNodes, Holders: []Holder{}}
	if reason := cmp.Or(d.Unhealthy, d.Fault); reason != "" {
		r.Health, r.Reason = Unhealthy, reason
	}
	return r
}

// markWhole keeps the mark where there are other devices in the resource: one that is all there is, is a unit (inventory.Units).
func markWhole(all []Device) {
	parts := map[string]bool{}
	for _, d := range all {
		parts[d.Resource] = parts[d.Resource] || !d.Whole
	}
	for i := range all {
		all[i].Whole = all[i].Whole && parts[all[i].Resource]
	}
}

// compareHolders puts the containers that run to the pod's end first.
func compareHolders(a, b Holder) int {
	rank := map[string]int{string(alloc.Main): 0, string(alloc.Sidecar): 1, string(alloc.Init): 2}
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.PodUID, b.PodUID),
		cmp.Compare(rank[a.Role], rank[b.Role]), cmp.Compare(a.Container, b.Container))
}

// exclude finds the devices that are nobody's and are not granted all the same, by the rule that the manager grants by. Only those can be
// the reason that have a node, or the name, of the device.
func exclude(reported []Device, all []devices.DeviceStatus, held map[int][]alloc.Hardware) {
	near := map[key][]int{} // by node and by name, without a resource and with it
	for _, i := range slices.Sorted(maps.Keys(held)) {
		for _, n := range reported[i].Nodes {
			near[key{"", n}] = append(near[key{"", n}], i)
		}
		name := key{reported[i].Resource, cmp.Or(reported[i].ShareOf, reported[i].Name)}
		near[name] = append(near[name], i)
	}
	for i := range all { // reported begins with these
		d := &reported[i]
		if len(d.Holders) > 0 || d.Whole {
			continue
		}
		candidates := slices.Clone(near[key{d.Resource, cmp.Or(d.ShareOf, d.Name)}])
		for _, n := range d.Nodes {
			candidates = append(candidates, near[key{"", n}]...)
		}
		for _, other := range candidates {
			name := reported[other].Resource + "=" + reported[other].Name
			if !slices.Contains(d.ExcludedBy, name) && alloc.NewHeld(held[other]...).Excludes(all[i].Device) {
				d.ExcludedBy = append(d.ExcludedBy, name)
			}
		}
	}
}
