package topology

import (
	"fmt"
	"slices"
	"testing"

	"monopod.dev/monopod/internal/devices/inventory"
)

// rig is a host that grants devices as a device manager is to: a pod gets all of its containers' devices or none, device by device by affinity.
type rig struct {
	aligner *Aligner
	devices map[string][]inventory.Device
	taken   map[string]map[string]bool
}

func newRig(t *testing.T, cfg Config, devices map[string][]inventory.Device) *rig {
	t.Helper()
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{aligner: a, devices: devices, taken: map[string]map[string]bool{}}
	for resource := range devices {
		r.taken[resource] = map[string]bool{}
	}
	return r
}

// granted is what one container got of each resource.
type granted map[string][]inventory.Device

// nodes are the NUMA nodes of one resource's devices, in the order in which they were taken.
func (g granted) nodes(resource string) string {
	text := ""
	for _, d := range g[resource] {
		text += " " + nodesOf(d.NUMA)
	}
	return text
}

// admit grants to all containers of a pod, or to none of them.
func (r *rig) admit(pod []Container) ([]granted, error) {
	var (
		all    []granted
		handed = map[string][]inventory.Device{} // what earlier init containers leave, also from one to the next
		mine   = map[string][]inventory.Device{} // all that was taken for this pod
		to     Affinity
		err    error
	)
	undo := func() {
		for resource, devices := range mine {
			for _, d := range devices {
				delete(r.taken[resource], d.Name)
			}
		}
	}
	if r.aligner.Scope() == PerPod {
		if to, err = r.aligner.Align(r.requests(PodCounts(pod), nil)); err != nil {
			return nil, err
		}
	}
	for _, c := range pod {
		if r.aligner.Scope() == PerContainer {
			if to, err = r.aligner.Align(r.requests(c.Counts, handed)); err != nil {
				undo()
				return nil, err
			}
		}
		got := granted{}
		for resource, n := range c.Counts {
			first := r.aligner.Split(handed[resource], to).Ordered()
			rest := r.aligner.Split(r.free(resource), to).Ordered()
			if len(first)+len(rest) < n {
				undo()
				return nil, fmt.Errorf("%s: %d wanted, %d free", resource, n, len(first)+len(rest))
			}
			got[resource] = slices.Concat(first, rest)[:n]
			for i, d := range got[resource] {
				if r.taken[resource][d.Name] = true; i >= len(first) {
					mine[resource] = append(mine[resource], d)
				}
			}
			r.hand(c, handed, resource, got[resource])
		}
		all = append(all, got)
	}
	return all, nil
}

// hand keeps the list of what is handed down up with a container's grant.
func (r *rig) hand(c Container, handed map[string][]inventory.Device, resource string, got []inventory.Device) {
	left := slices.DeleteFunc(slices.Clone(handed[resource]), func(d inventory.Device) bool {
		return slices.ContainsFunc(got, func(g inventory.Device) bool { return g.Name == d.Name })
	})
	if c.Init && !c.Restartable {
		left = append(left, got...)
	}
	handed[resource] = left
}

func (r *rig) free(resource string) []inventory.Device {
	return slices.DeleteFunc(slices.Clone(r.devices[resource]), func(d inventory.Device) bool { return r.taken[resource][d.Name] || d.Unhealthy != "" })
}

func (r *rig) requests(counts map[string]int, handed map[string][]inventory.Device) []Request {
	var reqs []Request
	for resource, n := range counts {
		reqs = append(reqs, Request{Resource: resource, Count: n, Devices: r.devices[resource], Available: r.free(resource), HandedDown: handed[resource]})
	}
	return reqs
}
