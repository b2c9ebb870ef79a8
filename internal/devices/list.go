package devices

import (
	"cmp"
	"slices"
	"time"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/inventory"
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

// GrantedDevice is one device of a grant.
type GrantedDevice struct {
	Resource string `json:"resource"`
	Name     string `json:"name"`
	// Source is the name of the source that it was granted by, such as "cdi".
	Source string `json:"source"`
	// Missing: nobody knows the device any more.
	Missing bool `json:"missing,omitempty"`
}

// Grants lists all grants by namespace, pod and container.
func (m *Manager) Grants() []GrantRecord {
	snap := m.worlds.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	grants := []GrantRecord{}
	for uid, pod := range m.granted {
		for container, rec := range pod.Containers {
			g := GrantRecord{PodUID: uid, PodNamespace: pod.Namespace, PodName: pod.Name, Container: container, Role: rec.Role, GrantedAt: rec.GrantedAt}
			for resource, has := range sorted(rec.Grants) {
				for _, d := range has.Devices {
					_, found := snap.Find(resource, d.Name)
					g.Devices = append(g.Devices, GrantedDevice{Resource: resource, Name: d.Name, Source: has.Source, Missing: !found})
				}
			}
			grants = append(grants, g)
		}
	}
	slices.SortFunc(grants, func(a, b GrantRecord) int {
		return cmp.Or(cmp.Compare(a.PodNamespace, b.PodNamespace), cmp.Compare(a.PodName, b.PodName),
			cmp.Compare(a.PodUID, b.PodUID), cmp.Compare(a.Container, b.Container))
	})
	return grants
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
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]DeviceStatus, 0, len(snap.Devices))
	for _, d := range snap.Devices {
		s := DeviceStatus{Device: d}
		if err := m.unfit[keyOf(d)]; err != nil {
			s.Fault = err.Error()
		}
		all = append(all, s)
	}
	return all
}
