package devices

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/book"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/kit/ordered"
)

// GrantRecord is one container's devices, for those who want to know which pod has which.
type GrantRecord struct {
	PodUID       string          `json:"podUID"`
	PodNamespace string          `json:"podNamespace"`
	PodName      string          `json:"podName"`
	Container    string          `json:"container"`
	Role         alloc.Role      `json:"role"`
	GrantedAt    time.Time       `json:"grantedAt"`
	Devices      []GrantedDevice `json:"devices"`
}

// Health is how a device is that was granted.
type Health string

// The healths of granted devices.
const (
	Healthy Health = "Healthy"
	// Unhealthy: whoever knows the device says that something is wrong with it.
	Unhealthy Health = "Unhealthy"
	// Unknown: nobody knows the device any more, or its name is another's now.
	Unknown Health = "Unknown"
)

// GrantedDevice is one device of a grant.
type GrantedDevice struct {
	Resource string `json:"resource"`
	Name     string `json:"name"`
	// Aliases are the device's other names in the resource; of a share, that of the device too.
	Aliases []string `json:"aliases,omitempty"`
	// ShareOf is the name of the device of which it was granted as a share; empty: nobody else was to have it.
	ShareOf string `json:"shareOf,omitempty"`
	// Nodes are the host's device nodes that it was when it was granted; none: it is its name.
	Nodes []string `json:"nodes,omitempty"`
	// Given are the device nodes of the host that a source's answer has given the container, of all its devices of the resource together, where the source
	// does not tell those of each; without those that belong to no device alone, which are Shared.
	Given  []string `json:"given,omitempty"`
	Shared []string `json:"shared,omitempty"`
	// Origin is where the device was defined when it was granted; empty: that is not on record.
	Origin string `json:"origin,omitempty"`
	// Source is the name of the source that it was granted by, such as "cdi".
	Source string `json:"source"`
	// Pending: the source has not answered yet how the container is to get it, so no container has it; it is nobody else's meanwhile.
	Pending bool `json:"pending,omitempty"`
	// Health is that of the device now; Why tells of one that is not healthy.
	Health Health `json:"health"`
	Why    string `json:"why,omitempty"`
	// Awaited: the resource's devices are not known yet after a start of the node. The device is what it was before, as far as anybody knows.
	Awaited bool `json:"awaited,omitempty"`
	// NUMA are the NUMA nodes that the device is near; none: it is not known, or does not matter.
	NUMA []int `json:"numa,omitempty"`
}

// Grants lists all grants by namespace, pod and container.
func (m *Manager) Grants() []GrantRecord {
	w := m.worlds.now()
	grants := []GrantRecord{}
	m.clerk.with(func(b *book.Book) {
		for uid, pod := range b.Records() {
			grants = append(grants, list(w, m.boot, uid, pod)...)
		}
	})
	slices.SortFunc(grants, compareGrants)
	return grants
}

// GrantsOf lists what one pod has, by container.
func (m *Manager) GrantsOf(podUID string) []GrantRecord {
	pod, _ := m.clerk.record(podUID)
	if len(pod.Containers) == 0 {
		return nil
	}
	grants := list(m.worlds.now(), m.boot, podUID, pod)
	slices.SortFunc(grants, compareGrants)
	return grants
}

func compareGrants(a, b GrantRecord) int {
	return cmp.Or(cmp.Compare(a.PodNamespace, b.PodNamespace), cmp.Compare(a.PodName, b.PodName),
		cmp.Compare(a.PodUID, b.PodUID), cmp.Compare(a.Container, b.Container))
}

// list tells what the containers of a pod have, in no order.
func list(w *book.World, boot, uid string, p book.Record) (grants []GrantRecord) {
	for container, rec := range p.Containers {
		g := GrantRecord{PodUID: uid, PodNamespace: p.Namespace, PodName: p.Name, Container: container, Role: rec.Role, GrantedAt: rec.GrantedAt}
		for resource, has := range ordered.Map(rec.Grants) {
			has = has.Current(w, resource, boot)
			for _, d := range has.Devices {
				now := health(w, has.Source, resource, d)
				now.Pending = has.Answer == nil
				now.Given, now.Shared = has.Given()
				g.Devices = append(g.Devices, now)
			}
		}
		if len(g.Devices) > 0 { // it may have nothing but what the node merely counts
			grants = append(grants, g)
		}
	}
	return grants
}

// health tells how a device is that was granted.
func health(w *book.World, source, resource string, g book.Device) GrantedDevice {
	out := GrantedDevice{Resource: resource, Name: g.Name, ShareOf: g.ShareOf, Nodes: g.Nodes, Origin: g.Origin, Source: source}
	d, found := g.Find(w.Part(source).Snapshot, resource)
	switch {
	case !found && w.Awaits(source, resource):
		out.Awaited, out.Health, out.Why = true, Unknown, "its plugin has not told its devices again since the node was started"
		return out
	case !found:
		out.Health, out.Why = Unknown, "the device is not there any more"
		for _, p := range w.Problems {
			if p.Resource == resource {
				out.Why += ": " + p.Message
				break
			}
		}
		return out
	case g.Nodes != nil && !slices.Equal(g.Nodes, d.Nodes):
		out.Health, out.Why = Unknown, fmt.Sprintf("the name is that of other hardware now (%s; it was %s)", book.NodeWords(d.Nodes), book.NodeWords(g.Nodes))
		return out
	case d.Unhealthy != "":
		out.Health, out.Why = Unhealthy, d.Unhealthy
	default:
		out.Health = Healthy
	}
	for _, name := range append([]string{d.Name, d.ShareOf}, d.Aliases...) {
		if name != g.Name && name != "" && !slices.Contains(out.Aliases, name) {
			out.Aliases = append(out.Aliases, name)
		}
	}
	out.NUMA = d.NUMA
	return out
}

// DeviceStatus is one device as it stands.
type DeviceStatus struct {
	inventory.Device
	// Fault is what was wrong with the device when it was last to be granted; empty: nothing, or it was not looked at.
	Fault string `json:"fault,omitempty"`
}

// Devices lists all devices by resource and name.
func (m *Manager) Devices() []DeviceStatus {
	snap := m.worlds.now()
	all := make([]DeviceStatus, 0, len(snap.Devices))
	for _, d := range snap.Devices {
		s := DeviceStatus{Device: d}
		if err := m.checks.of(d); err != nil {
			s.Fault = err.Error()
		}
		all = append(all, s)
	}
	return all
}
