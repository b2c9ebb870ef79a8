package devices

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/source"
)

// question is what a source is asked for advice about.
type question struct {
	place
	adviser         source.Adviser
	available, must []string
	n               int
}

// place is where advice is followed.
type place struct{ container, resource string }

// reserve chooses devices for the containers, and notes them, so that nobody else is given them meanwhile. A device that turns out
// not to be usable is left out, and the choice is made again.
func (m *Manager) reserve(ctx context.Context, req PodRequest, needs []need) error {
	unfit := map[deviceKey]string{}
	advice := map[place][]string{}
	for {
		w := m.worlds.now()
		ask, err := m.choose(w, req, needs, advice, unfit)
		switch {
		case err != nil:
			m.unreserve(req.UID)
			return err
		case ask != nil:
			names := ask.adviser.Prefer(ctx, ask.resource, ask.available, ask.must, ask.n)
			if err := ctx.Err(); err != nil {
				m.unreserve(req.UID)
				return err
			}
			advice[ask.place] = names
		case m.checkAll(w, req.UID, unfit):
			return nil
		}
	}
}

// choose makes the choice with the advice there is, and reserves it; or says of whom advice is to be had first.
func (m *Manager) choose(w *world, req PodRequest, needs []need, advice map[place][]string, unfit map[deviceKey]string) (*question, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.reserved, req.UID)
	self := waiter{uid: req.UID, namespace: req.Namespace, name: req.Name, created: req.Created, resources: map[string]bool{}}
	for _, n := range needs {
		for resource := range n.want {
			self.resources[resource] = true
		}
	}
	if err := m.unknown(); err != nil {
		return nil, &NotReadyError{slices.Min(slices.Collect(maps.Keys(self.resources))), err}
	}
	pool := alloc.Pool{Devices: w.Of, Held: m.heldByOthers(req.UID), Unfit: func(d inventory.Device) string { return unfit[keyOf(d)] }}
	chosen, ask, err := m.allocate(w, pool, m.granted[req.UID], needs, advice)
	var short *alloc.Shortage
	if errors.As(err, &short) {
		m.turnedAway = m.turnedAway || len(m.reserved) > 0
		pool.Held = alloc.NewHeld()
		if _, _, never := m.allocate(w, pool, m.granted[req.UID], needs, advice); never != nil {
			m.leave(req.UID)
			return nil, m.shortage(w, short, unfit, "; that is more than the node has, so the pod does not stand in line")
		}
		m.queue.enter(self)
		return nil, m.shortage(w, short, unfit, "")
	}
	if o, behind := m.queue.ahead(self); behind {
		m.queue.enter(self)
		resource := slices.Min(slices.DeleteFunc(slices.Collect(maps.Keys(self.resources)), func(r string) bool { return !o.resources[r] }))
		return nil, &NotReadyError{resource, fmt.Errorf("pod %s/%s, which came first, waits for it", o.namespace, o.name)}
	}
	m.reserved[req.UID] = podRecord{Containers: chosen} // with a question open, what it would be given without the answer
	return ask, nil
}

// unknown says why it is not known who has which devices. m.mu is held.
func (m *Manager) unknown() error {
	if !m.settled {
		return errors.New("which devices are in use is not known before the runtime has told what runs")
	}
	for _, uid := range slices.Sorted(maps.Keys(m.unreadable)) {
		return fmt.Errorf("which devices are in use is not known for sure until the pod of a damaged ledger record is deleted: %w", m.unreadable[uid])
	}
	return nil
}

// heldByOthers is what pods but the one have, or are about to have. m.mu is held.
func (m *Manager) heldByOthers(uid string) *alloc.Held {
	h := alloc.NewHeld()
	for _, records := range []map[string]podRecord{m.granted, m.reserved} {
		for other, rec := range records {
			if other != uid {
				rec.hardware(h.Add)
			}
		}
	}
	return h
}

// allocate chooses for all needs of a pod, of which some containers have theirs already. ask is the first question that has no answer yet.
func (m *Manager) allocate(w *world, pool alloc.Pool, has podRecord, needs []need, advice map[place][]string) (chosen map[string]containerRecord, ask *question, err error) {
	a := alloc.Begin(pool)
	for _, role := range []alloc.Role{alloc.Init, alloc.Sidecar, alloc.Main} {
		for _, c := range sorted(has.Containers) {
			for resource, g := range sorted(c.Grants) {
				if c.Role == role {
					a.Given(role, resource, g.devices(w, resource))
				}
			}
		}
	}
	chosen = map[string]containerRecord{}
	at := m.now().UTC()
	for _, n := range needs {
		rec := containerRecord{Role: n.role, Grants: map[string]resourceGrant{}, GrantedAt: at}
		chosen[n.name] = rec
		for resource, count := range sorted(n.want) {
			p := place{n.name, resource}
			names, asked := advice[p]
			if adviser, ok := w.of[resource].(source.Adviser); ok && !asked && ask == nil {
				ask = questionFor(a.Candidates(resource), p, adviser, count)
			}
			devices, err := a.Take(n.role, resource, count, names)
			if err != nil {
				return nil, nil, err
			}
			g := resourceGrant{Source: w.of[resource].Name()}
			for _, d := range devices {
				g.Devices = append(g.Devices, grantedDevice{d.Name, d.Nodes})
			}
			rec.Grants[resource] = g
		}
	}
	return chosen, ask, nil
}

// questionFor is nil where there is no choice.
func questionFor(c alloc.Candidates, p place, adviser source.Adviser, n int) *question {
	must := c.Handed[:min(n, len(c.Handed))]
	if len(must) == n || len(must)+len(c.Free) <= n {
		return nil
	}
	q := &question{place: p, adviser: adviser, n: n}
	for _, d := range must {
		q.must = append(q.must, d.Name)
	}
	q.available = slices.Clone(q.must)
	for _, d := range c.Free {
		q.available = append(q.available, d.Name)
	}
	return q
}

// shortage explains why there are too few devices.
func (m *Manager) shortage(w *world, short *alloc.Shortage, unfit map[deviceKey]string, more string) error {
	if w.of[short.Resource] == nil {
		return &NotReadyError{short.Resource, fmt.Errorf("no device of this resource is defined (looked in %s)%s", strings.Join(w.Places, ", "), remarks(w, short.Resource))}
	}
	var faults strings.Builder
	for _, d := range w.Of(short.Resource) {
		if why := unfit[keyOf(d)]; why != "" {
			faults.WriteString("; " + why)
		} else if d.Unhealthy != "" {
			fmt.Fprintf(&faults, "; %s, device %q: %s", d.Origin, d.Name, d.Unhealthy)
		}
	}
	return &NotReadyError{short.Resource, fmt.Errorf("%w%s%s%s", short, more, faults.String(), remarks(w, short.Resource))}
}

// remarks are the problems that may be why a resource lacks a device: its own, and those of files whose content is not
// known.
func remarks(w *world, resource string) string {
	var text strings.Builder
	for _, p := range w.Problems {
		if p.Resource == resource || p.Resource == "" {
			text.WriteString("; " + p.String())
		}
	}
	return text.String()
}

// checkAll checks chosen devices, and notes in unfit those that cannot be used.
func (m *Manager) checkAll(w *world, uid string, unfit map[deviceKey]string) bool {
	m.mu.Lock()
	rec := m.reserved[uid]
	m.mu.Unlock()
	ok := true
	for _, c := range rec.Containers {
		for resource, g := range c.Grants {
			for _, d := range g.devices(w, resource) {
				if err := m.check(w, d, false); err != nil {
					ok = false
					unfit[keyOf(d)] = err.Error()
				}
			}
		}
	}
	return ok
}

// check asks the source, and remembers the answer for Problems.
func (m *Manager) check(w *world, d inventory.Device, inUse bool) error {
	err := w.of[d.Resource].Check(d.Resource, d.Name, inUse)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		delete(m.unfit, keyOf(d))
	} else {
		m.unfit[keyOf(d)] = err
	}
	return err
}

// unreserve takes a reservation back. There is at most one of a pod, because calls for one pod are serialized.
func (m *Manager) unreserve(uid string) {
	m.mu.Lock()
	_, had := m.reserved[uid]
	delete(m.reserved, uid)
	tell := had && m.turnedAway
	if tell {
		m.turnedAway = false
	}
	m.mu.Unlock()
	if tell {
		m.subscribers.tick()
	}
}

// leave takes a pod out of the line, and tells those behind it. m.mu is held.
func (m *Manager) leave(uid string) {
	if m.queue.leave(uid) {
		m.subscribers.tick()
	}
}
