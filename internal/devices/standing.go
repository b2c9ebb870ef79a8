package devices

import (
	"fmt"
	"maps"
	"slices"

	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/source"
)

// usable says whether devices that were granted can be used now, and returns the grant as it stands. The error is a *NotReadyError.
func (m *Manager) usable(w *world, resource string, g resourceGrant) (resourceGrant, error) {
	src, err := m.sourceOf(w, resource, g)
	if err != nil {
		return g, err
	}
	_, lasting := src.(source.Lasting)
	// A record without a boot and of a source whose answers do not last may be of a version that knew no boots: its container may be running.
	inUse := g.Boot == m.boot || g.Boot == "" && !lasting
	g = m.current(w, resource, g)
	for _, had := range g.Devices {
		d, ok := had.find(w.part(g.Source), resource)
		if !ok {
			return g, &NotReadyError{resource, fmt.Errorf("device %q, which this container was granted, is not there any more: bring it back, or delete the pod%s", had.Name, remarks(w, resource))}
		}
		if !slices.Equal(had.Nodes, d.Nodes) {
			return g, &NotReadyError{resource, changed(had, d)}
		}
		if err := m.check(src, d, inUse); err != nil {
			return g, &NotReadyError{resource, fmt.Errorf("a device that this container was granted cannot be used: %w", err)}
		}
	}
	return g, nil
}

// current is a grant as it stands in this boot. The numbers of device nodes are dealt anew in each boot: a device that was granted in an earlier one
// is what its name says now. (Until a plugin has been asked again, what its answer gave in that boot is the best that is known.)
func (m *Manager) current(w *world, resource string, g resourceGrant) resourceGrant {
	if g.Boot == m.boot {
		return g
	}
	devices := slices.Clone(g.Devices)
	for i, had := range devices {
		d, ok := had.find(w.part(g.Source), resource)
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

func changed(had grantedDevice, d inventory.Device) error {
	return fmt.Errorf("%s: device %q is %v now, and was %v when this container was granted it: delete the pod, or restore the definition", d.Origin, had.Name, d.Nodes, had.Nodes)
}

// lasts says that a grant holds whatever is known of its devices now.
func (m *Manager) lasts(g resourceGrant) bool {
	_, lasting := m.worlds.named(g.Source).(source.Lasting)
	return g.Counted > 0 || lasting && g.answeredIn(m.boot)
}

// stillThere says whether the devices can be used for which the sources are to be asked: what was chosen just now is, what is on record may have gone.
func (m *Manager) stillThere(pod podRecord) error {
	w := m.worlds.now()
	for _, c := range sorted(pod.Containers) {
		for resource, g := range sorted(c.Grants) {
			if g.answeredIn(m.boot) {
				continue
			}
			if _, err := m.usable(w, resource, g); err != nil {
				return err
			}
		}
	}
	return nil
}

// withdraw takes back what a container was to have and never got, because its source has not answered, and which it cannot get any more: others are
// chosen in its place.
func (m *Manager) withdraw(req PodRequest, pod podRecord) (podRecord, error) {
	w := m.worlds.now()
	left := maps.Clone(pod.Containers)
	maps.DeleteFunc(left, func(_ string, c containerRecord) bool {
		for resource, g := range c.Grants {
			src := m.worlds.named(g.Source)
			if _, lasting := src.(source.Lasting); g.Answer != nil || !lasting || w.of[resource] != src || w.awaits(g.Source, resource) {
				continue
			}
			if _, err := m.usable(w, resource, g); err != nil {
				return true
			}
		}
		return false
	})
	if len(left) == len(pod.Containers) {
		return pod, nil
	}
	m.log.Info("devices that no container has got, and that are not there any more, are taken back", "pod", req.Namespace+"/"+req.Name, "podUID", req.UID)
	return m.keepOf(req, pod, left)
}

// keepOf keeps of a pod's record the containers that are left, and returns what it is then: empty if there are none.
func (m *Manager) keepOf(req PodRequest, pod podRecord, left map[string]containerRecord) (podRecord, error) {
	if len(left) == 0 {
		return podRecord{}, m.drop(req.UID)
	}
	next := pod
	next.Containers = left
	return next, m.keep(req.UID, pod, next)
}
