package devices

import (
	"fmt"
	"maps"

	"monopod.dev/monopod/internal/devices/book"
	"monopod.dev/monopod/internal/kit/ordered"
)

// usable says whether devices that were granted can be used now, and returns the grant as it stands. The error is a *NotReadyError.
func (m *Manager) usable(w *book.World, resource string, g book.Grant) (book.Grant, error) {
	src, err := m.sourceOf(w, resource, g)
	if err != nil {
		return g, err
	}
	// A record without a boot and of a source whose answers do not last may be of a version that knew no boots: its container may be running.
	inUse := g.Boot == m.boot || g.Boot == "" && !w.Part(g.Source).Lasts
	g = g.Current(w, resource, m.boot)
	for _, had := range g.Devices {
		d, wait := had.There(w, g.Source, resource)
		if wait != nil {
			return g, waitsFor(wait)
		}
		if err := m.checks.check(src, d, inUse); err != nil {
			return g, &NotReadyError{resource, fmt.Errorf("a device that this container was granted cannot be used: %w", err)}
		}
	}
	return g, nil
}

// stillThere says whether the devices can be used for which the sources are to be asked: what was chosen just now is, what is on record may have gone.
func (m *Manager) stillThere(pod book.Record) error {
	w := m.worlds.now()
	for _, c := range ordered.Map(pod.Containers) {
		for resource, g := range ordered.Map(c.Grants) {
			if g.AnsweredIn(m.boot) {
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
func (m *Manager) withdraw(req book.Request, pod book.Record) (book.Record, error) {
	w := m.worlds.now()
	left := maps.Clone(pod.Containers)
	maps.DeleteFunc(left, func(_ string, c book.Container) bool {
		for resource, g := range c.Grants {
			if g.Answer != nil || !w.Part(g.Source).Lasts || w.Owner(resource) != g.Source || w.Awaits(g.Source, resource) {
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
	return m.clerk.keepOf(req.UID, pod, left)
}
