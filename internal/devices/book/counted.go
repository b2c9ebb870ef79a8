package book

import (
	"fmt"
	"maps"
	"slices"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/answer"
	"monopod.dev/monopod/internal/devices/topology"
	"monopod.dev/monopod/internal/kit/ordered"
)

// counter is the source, in records, of what the Node's status counts and no source of devices has: somebody has written it there, and knows what it
// stands for. Who gets some of it gets the number and nothing else, and keeps that whoever has the resource later.
const counter = "node"

// apart are what a choice of devices leaves out: what the node merely counts, by container and resource.
type apart map[string]map[string]int

// setApart takes from the needs what the node merely counts, if there is enough of it.
func (b *Book) setApart(w *World, req Request) (devices []Need, counted apart, wait *Wait) {
	counted = apart{}
	var all []topology.Container
	for _, n := range req.Needs {
		c := topology.Container{Counts: map[string]int{}, Init: n.Role != alloc.Main, Restartable: n.Role == alloc.Sidecar}
		for resource, count := range n.Want {
			if w.Owner(resource) == "" && req.Counted[resource] > 0 {
				c.Counts[resource] = count
			}
		}
		if len(c.Counts) > 0 {
			n.Want = maps.Clone(n.Want)
			maps.DeleteFunc(n.Want, func(resource string, _ int) bool { return c.Counts[resource] > 0 })
			counted[n.Container] = c.Counts
			all = append(all, c)
		}
		devices = append(devices, n)
	}
	for resource, count := range ordered.Map(topology.PodCounts(all)) {
		taken := 0
		for p := range b.others(req.UID) {
			for rec := range p.has {
				taken += rec.counts(resource)
			}
		}
		if has := req.Counted[resource]; int64(taken+count) > has {
			return nil, nil, &Wait{resource, fmt.Errorf("the node's status counts %d, the pod asks for %d, and other pods have %d", has, count, taken)}
		}
	}
	return devices, counted, nil
}

// counts is how much the pod has of what the node merely counts. Init containers are taken to run before the sidecars: in which order they do is not on
// record, and nothing is lost where the number is too small.
func (p Record) counts(resource string) int {
	var all []topology.Container
	for _, role := range []alloc.Role{alloc.Init, alloc.Sidecar, alloc.Main} {
		for _, c := range p.Containers {
			if n := c.Grants[resource].Counted; n > 0 && c.Role == role {
				all = append(all, topology.Container{Counts: map[string]int{resource: n}, Init: role != alloc.Main, Restartable: role == alloc.Sidecar})
			}
		}
	}
	return topology.PodCounts(all)[resource]
}

// addTo adds what is counted to what was chosen.
func (a apart) addTo(chosen map[string]Container, boot string) {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		for resource, n := range a[name] {
			chosen[name].Grants[resource] = Grant{Source: counter, Counted: n, Answer: &answer.Answer{}, Boot: boot}
		}
	}
}
