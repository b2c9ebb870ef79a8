package devices

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/source"
)

// ask returns the record with the answers that it lacks; effectless: only of sources that are asked without effect. Any error but a
// refusal is a *NotReadyError.
func (m *Manager) ask(ctx context.Context, uid string, rec podRecord, effectless bool) (podRecord, error) {
	w := m.worlds.now()
	next := map[string]containerRecord{}
	for name, c := range sorted(rec.Containers) {
		for resource, g := range sorted(c.Grants) {
			if g.answeredIn(m.boot) {
				continue
			}
			src, err := m.sourceOf(w, resource, g)
			if err != nil {
				return rec, err
			}
			if _, ok := src.(source.Effectless); effectless && !ok {
				continue
			}
			if g, err = m.identified(w, uid, resource, g); err != nil {
				return rec, err
			}
			a, err := src.Prepare(ctx, source.Container{PodUID: uid, PodNamespace: rec.Namespace, PodName: rec.Name, Name: name}, resource, g.names())
			if err != nil {
				return rec, mayPass(resource, err)
			}
			fresh := g.Boot == ""
			g.Answer, g.Boot = &a, m.boot
			if starter, ok := src.(source.Starter); ok {
				g.StartRequired, _ = starter.StartRequired(resource)
			}
			if g, err = m.claim(uid, rec, name, resource, g); err != nil {
				if taken := (*takenError)(nil); errors.As(err, &taken) && !fresh {
					err = taken.NotReadyError // what it had before the machine was restarted it has to have again
				}
				return rec, err
			}
			c = c.withGrant(resource, g)
		}
		if _, err := c.answer(); err != nil {
			return rec, fmt.Errorf("container %q: %w", name, err)
		}
		next[name] = c
	}
	return rec.with(next), nil
}

// identified is a grant of an earlier boot that is about to be answered anew, with the hardware that its devices are now, if that is nobody's
// else: its device nodes may have got the numbers of another's.
func (m *Manager) identified(w *world, uid, resource string, g resourceGrant) (resourceGrant, error) {
	g = m.current(w, resource, g)
	if g.Boot == "" || g.Boot == m.boot {
		return g, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var err error
	for _, had := range g.Devices {
		d, ok := had.find(w.part(g.Source), resource)
		if !ok || len(d.Nodes) == 0 {
			continue
		}
		d.ShareOf = had.ShareOf
		m.othersGrants(w, uid, func(pod podRecord, other string, o resourceGrant) {
			held := alloc.NewHeld(w.hardware(other, o)...)
			if w.isForeign(resource, g) && held.Overlays(d.Nodes) || !w.isForeign(resource, g) && held.Excludes(d) {
				err = &NotReadyError{resource, fmt.Errorf("device %q is %s since the machine was restarted, which pod %s/%s has", had.Name, nodes(d.Nodes), pod.Namespace, pod.Name)}
			}
		})
	}
	return g, err
}

// claim notes which hardware is behind a new answer of a source that does not tell it device by device, if no other source has given it to
// somebody. What one source shares between its own devices is its own business. The note is in reserved, until the record is kept.
func (m *Manager) claim(uid string, rec podRecord, container, resource string, g resourceGrant) (resourceGrant, error) {
	if slices.ContainsFunc(g.Devices, func(d grantedDevice) bool { return len(d.Nodes) > 0 }) {
		return g, nil
	}
	w := m.worlds.now()
	g.Nodes = nil
	for _, s := range m.worlds.sources {
		if id, ok := s.(source.Identifier); ok && s.Name() != g.Source {
			g.Nodes = slices.Concat(g.Nodes, id.Identify(*g.Answer))
		}
	}
	if len(g.Nodes) == 0 {
		return g, nil
	}
	slices.Sort(g.Nodes)
	g.Nodes = slices.Compact(g.Nodes)
	m.mu.Lock()
	defer m.mu.Unlock()
	if holder := m.holder(w, uid, g.Source, g.Nodes); holder != nil {
		err := &NotReadyError{resource, fmt.Errorf("its answer gives %s, which pod %s/%s has by another resource", strings.Join(g.Nodes, ", "), holder.Namespace, holder.Name)}
		return g, &takenError{resource, g, err}
	}
	claimed := m.reserved[uid].with(map[string]containerRecord{container + " " + resource: {Grants: map[string]resourceGrant{resource: {Source: g.Source, Nodes: g.Nodes}}}})
	claimed.Namespace, claimed.Name = rec.Namespace, rec.Name
	m.reserved[uid] = claimed
	return g, nil
}

// holder is a pod but the one that has hardware with one of the nodes by another source; nil: none has. m.mu is held.
func (m *Manager) holder(w *world, uid, source string, nodes []string) (holder *podRecord) {
	m.othersGrants(w, uid, func(pod podRecord, resource string, o resourceGrant) {
		if o.Source != source && alloc.NewHeld(o.hardware(resource)...).Overlays(nodes) {
			holder = &pod
		}
	})
	return holder
}

// takenError says that a source's answer gives what a pod has by another resource.
type takenError struct {
	resource string
	grant    resourceGrant // with the nodes of the answer
	*NotReadyError
}

// Unwrap makes it the *NotReadyError that it is.
func (e *takenError) Unwrap() error { return e.NotReadyError }

// device is the one that the hardware is, if that is known.
func (e *takenError) device() (key deviceKey, known bool) {
	if len(e.grant.Devices) != 1 {
		return deviceKey{}, false
	}
	return deviceKey{e.resource, e.grant.Devices[0].Name}, true
}

// sourceOf is the source that has given the devices.
func (m *Manager) sourceOf(w *world, resource string, g resourceGrant) (source.Source, error) {
	if src := m.worlds.named(g.Source); src != nil && slices.Contains(w.part(g.Source).Resources, resource) {
		return src, nil
	}
	return nil, &NotReadyError{resource, fmt.Errorf("its devices are of source %q, which does not have the resource now%s", g.Source, remarks(w, resource))}
}

// mayPass leaves a refusal as it is, and makes any other error one that may pass.
func mayPass(resource string, err error) error {
	var refused *source.RefusedError
	if errors.As(err, &refused) {
		return err
	}
	return &NotReadyError{resource, err}
}
