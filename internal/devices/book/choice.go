package book

import (
	"errors"
	"slices"
	"time"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/topology"
	"monopod.dev/monopod/internal/kit/ordered"
)

// choice chooses devices for all containers of a pod that lack them. It changes nothing, and may be made again and again.
type choice struct {
	w    *World
	pool alloc.Pool
	// has is what containers of the pod have already, needs are those of the others, in the order of their start.
	has     Record
	needs   []Need
	advice  map[Place][]string
	aligner *topology.Aligner
	at      time.Time
}

// Place is where advice is followed: in the choice of a resource's devices for a container.
type Place struct{ Container, Resource string }

// Question is what a source is to be asked for advice about: which N of the available devices, with all of Must among them, it prefers.
type Question struct {
	Place
	// Source is the one that has the resource.
	Source          string
	Available, Must []string
	N               int
}

// begin is the choice with what the pod has already.
func (c choice) begin() *alloc.Allocation {
	a := alloc.Begin(c.pool)
	for _, role := range []alloc.Role{alloc.Init, alloc.Sidecar, alloc.Main} {
		for _, rec := range ordered.Map(c.has.Containers) {
			for resource, g := range ordered.Map(rec.Grants) {
				if rec.Role == role && !c.w.isForeign(resource, g) { // another source's are handed down to nobody
					a.Given(role, resource, g.Known(c.w, resource))
				}
			}
		}
	}
	return a
}

// plain says whether there is enough, by number alone. The error is an *alloc.Shortage.
func (c choice) plain() error {
	a := c.begin()
	for _, n := range c.needs {
		for resource, count := range ordered.Map(n.Want) {
			if _, err := a.Take(n.Role, resource, count, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// isTooMuch says that the node does not have so much, whoever has what and however it is: a device that is not healthy may get well. What a resource
// has that is still awaited is not known.
func (c choice) isTooMuch() bool {
	w := c.w
	c.pool = alloc.Pool{
		Held: alloc.NewHeld(), Unfit: func(inventory.Device) string { return "" },
		Devices: func(resource string) []inventory.Device {
			devices := slices.Clone(w.Of(resource))
			for i := range devices {
				if !devices[i].Absent {
					devices[i].Unhealthy = ""
				}
			}
			return devices
		},
	}
	var short *alloc.Shortage
	return errors.As(c.plain(), &short) && !w.Awaits(w.Owner(short.Resource), short.Resource)
}

// aligned chooses with regard to NUMA nodes and to the sources' advice. ask is the first question that has no answer yet. The error is an
// *alloc.Shortage or a *topology.AffinityError.
func (c choice) aligned() (chosen map[string]Container, ask *Question, err error) {
	a := c.begin()
	var to topology.Affinity
	if c.aligner.Scope() == topology.PerPod {
		if to, err = c.aligner.Align(c.requests(a, topology.PodCounts(c.containers()))); err != nil {
			return nil, nil, err
		}
	}
	chosen = map[string]Container{}
	for _, n := range c.needs {
		if c.aligner.Scope() == topology.PerContainer {
			a.OrderBy(nil)
			if to, err = c.aligner.Align(c.requests(a, n.Want)); err != nil {
				return nil, nil, err
			}
		}
		if to.Mask != 0 {
			a.OrderBy(func(devices []inventory.Device) []inventory.Device { return c.aligner.Split(devices, to).Ordered() })
		}
		rec := Container{Role: n.Role, Grants: map[string]Grant{}, GrantedAt: c.at}
		chosen[n.Container] = rec
		for resource, count := range ordered.Map(n.Want) {
			p := Place{n.Container, resource}
			names, asked := c.advice[p]
			if c.w.Part(c.w.Owner(resource)).Advises && !asked && ask == nil {
				ask = c.question(a.Candidates(resource), to, p, count)
			}
			devices, err := a.Take(n.Role, resource, count, names)
			if err != nil {
				return nil, nil, err
			}
			rec.Grants[resource] = newGrant(c.w.Owner(resource), devices)
		}
	}
	return chosen, ask, nil
}

func newGrant(source string, devices []inventory.Device) Grant {
	g := Grant{Source: source}
	for _, d := range devices {
		g.Devices = append(g.Devices, Device{Name: d.Name, Nodes: d.Nodes, ShareOf: d.ShareOf, Origin: d.Origin})
	}
	return g
}

// requests are what the aligner is asked about.
func (c choice) requests(a *alloc.Allocation, counts map[string]int) []topology.Request {
	if c.aligner.Policy() == topology.None {
		return nil
	}
	var all []topology.Request
	for resource, n := range ordered.Map(counts) {
		can := a.Candidates(resource)
		all = append(all, topology.Request{Resource: resource, Count: n, Devices: c.w.Of(resource), Available: can.Free, HandedDown: can.Handed})
	}
	return all
}

// containers are those that lack devices, as the aligner counts them.
func (c choice) containers() []topology.Container {
	var all []topology.Container
	for _, n := range c.needs {
		all = append(all, topology.Container{Counts: n.Want, Init: n.Role != alloc.Main, Restartable: n.Role == alloc.Sidecar})
	}
	return all
}

// question is nil where there is no choice. The candidates are in order.
func (c choice) question(can alloc.Candidates, to topology.Affinity, p Place, n int) *Question {
	handed := can.Handed[:min(n, len(can.Handed))]
	if len(handed) == n || len(handed)+len(can.Free) <= n {
		return nil
	}
	available, must := c.aligner.Split(can.Free, to).Offer(n - len(handed))
	q := &Question{Place: p, Source: c.w.Owner(p.Resource), N: n, Must: names(handed, must), Available: names(handed, available)}
	if len(q.Must) == n {
		return nil
	}
	return q
}

// names are those of devices, in order.
func names(lists ...[]inventory.Device) []string {
	var all []string
	for _, d := range slices.Concat(lists...) {
		all = append(all, d.Name)
	}
	return all
}
