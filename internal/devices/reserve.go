package devices

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/source"
)

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
	needs, counted, err := m.setApart(w, req, needs)
	if err != nil {
		m.leave(req.UID)
		return nil, err
	}
	for _, c := range counted {
		maps.DeleteFunc(self.resources, func(resource string, _ bool) bool { return c[resource] > 0 })
	}
	for key, nodes := range m.learnt {
		if src := w.of[key.resource]; src != nil {
			if holder := m.holder(w, req.UID, src.Name(), nodes); holder != nil {
				unfit[key] = fmt.Sprintf("device %q is %s, which pod %s/%s has by another resource", key.name, strings.Join(nodes, ", "), holder.Namespace, holder.Name)
			}
		}
	}
	c := choice{w: w, has: m.granted[req.UID], needs: needs, advice: advice, aligner: m.aligner, at: m.now().UTC()}
	c.pool = alloc.Pool{
		Devices: w.Of, Held: m.heldByOthers(w, req.UID), Withheld: m.withheldFrom(w, req.UID),
		Unfit: func(d inventory.Device) string { return unfit[keyOf(d)] },
	}
	var short *alloc.Shortage
	if errors.As(c.plain(), &short) {
		m.turnedAway = m.turnedAway || len(m.reserved) > 0
		if c.isTooMuch() {
			m.leave(req.UID)
			return nil, m.shortage(w, short, unfit, "; that is more than the node has, so younger pods may start first")
		}
		m.queue.enter(self)
		return nil, m.shortage(w, short, unfit, "")
	}
	if o, behind := m.queue.ahead(self); behind {
		m.queue.enter(self)
		resource := slices.Min(slices.DeleteFunc(slices.Collect(maps.Keys(self.resources)), func(r string) bool { return !o.resources[r] }))
		return nil, &NotReadyError{resource, fmt.Errorf("pod %s/%s, which came first, waits for it", o.namespace, o.name)}
	}
	chosen, ask, err := c.aligned()
	switch {
	case errors.As(err, &short): // what is near to each other excludes each other
		m.queue.enter(self)
		return nil, m.shortage(w, short, unfit, "")
	case err != nil:
		m.leave(req.UID)
		return nil, err
	}
	counted.addTo(chosen, m.boot)
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

// others are the records of what pods but the one have, or are about to have. m.mu is held.
func (m *Manager) others(uid string) iter.Seq[podRecord] {
	return func(yield func(podRecord) bool) {
		for i, records := range []map[string]podRecord{m.granted, m.reserved} {
			for other, rec := range records {
				if _, whole := m.unwritten[other]; other == uid || i == 0 && whole {
					continue // itself, or what it is about to have has all of it
				}
				if !yield(rec) {
					return
				}
			}
		}
	}
}

// othersGrants goes through what pods but the one have, or are about to have. m.mu is held.
func (m *Manager) othersGrants(w *world, uid string, yield func(pod podRecord, resource string, g resourceGrant)) {
	for rec := range m.others(uid) {
		for _, c := range rec.Containers {
			for resource, g := range c.Grants {
				yield(rec, resource, m.current(w, resource, g))
			}
		}
	}
}

// heldByOthers is the hardware that pods but the one have. m.mu is held.
func (m *Manager) heldByOthers(w *world, uid string) *alloc.Held {
	h := alloc.NewHeld()
	m.othersGrants(w, uid, func(_ podRecord, resource string, g resourceGrant) {
		for _, hw := range w.hardware(resource, g) {
			h.Add(hw)
		}
	})
	return h
}

// withheldFrom counts the devices of resources that have changed their source while pods but the one have some by the source before: the new one's
// devices become free as those end. What is known by its nodes is compared, and need not be counted. m.mu is held.
func (m *Manager) withheldFrom(w *world, uid string) func(resource string) int {
	held := map[string]map[string]bool{} // by name: an init container and who it hands its device to have the same one
	m.othersGrants(w, uid, func(_ podRecord, resource string, g resourceGrant) {
		if w.isForeign(resource, g) && !(w.knowsNodes(resource) && slices.ContainsFunc(g.hardware(resource), func(h alloc.Hardware) bool { return len(h.Nodes) > 0 })) {
			if held[resource] == nil {
				held[resource] = map[string]bool{}
			}
			for _, d := range g.Devices {
				held[resource][d.Name] = true
			}
		}
	})
	return func(resource string) int { return len(held[resource]) }
}

// shortage explains why there are too few devices.
func (m *Manager) shortage(w *world, short *alloc.Shortage, unfit map[deviceKey]string, more string) error {
	if w.of[short.Resource] == nil {
		return &NotReadyError{short.Resource, fmt.Errorf("no device of this resource is defined (looked in %s)%s", strings.Join(w.Places, ", "), remarks(w, short.Resource))}
	}
	told := faults(w.Of(short.Resource), unfit)
	return &NotReadyError{short.Resource, fmt.Errorf("%w%s%s%s", short, more, told, remarksBeside(w, short.Resource, told))}
}

// mostFaults bounds what is told of a resource's devices: there may be thousands.
const mostFaults = 3

// faults are what is wrong with devices, those with the same fault together.
func faults(devices []inventory.Device, unfit map[deviceKey]string) string {
	var texts []string // what is unfit says itself what it is about
	var kinds []string
	names := map[string][]string{}
	for _, d := range devices {
		if why := unfit[keyOf(d)]; why != "" {
			texts = append(texts, why)
		} else if d.Unhealthy != "" {
			kind := d.Origin + ": " + d.Unhealthy
			if names[kind] == nil {
				kinds = append(kinds, kind)
			}
			names[kind] = append(names[kind], strconv.Quote(d.Name))
		}
	}
	for _, kind := range kinds {
		noun := "device"
		if len(names[kind]) > 1 {
			noun = "devices"
		}
		texts = append(texts, fmt.Sprintf("%s %s of %s", noun, some(names[kind], ", "), kind))
	}
	if len(texts) == 0 {
		return ""
	}
	return "; " + some(texts, "; ")
}

// some are the first of many words.
func some(words []string, between string) string {
	text := strings.Join(words[:min(len(words), mostFaults)], between)
	if more := len(words) - mostFaults; more > 0 {
		text += fmt.Sprintf("%sand %d more", between, more)
	}
	return text
}

// remarks are the problems that may be why a resource lacks a device: its own, and those of files whose content is not
// known.
func remarks(w *world, resource string) string { return remarksBeside(w, resource, "") }

// remarksBeside leaves out what is told already: a plugin that is gone is the fault of each of its devices.
func remarksBeside(w *world, resource, told string) string {
	var text strings.Builder
	for _, p := range w.Problems {
		if (p.Resource == resource || p.Resource == "") && !strings.Contains(told, p.String()) {
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
				if err := m.check(w.of[resource], d, false); err != nil {
					ok = false
					unfit[keyOf(d)] = err.Error()
				}
			}
		}
	}
	return ok
}

// check asks the source, and remembers the answer for Problems.
func (m *Manager) check(src source.Source, d inventory.Device, inUse bool) error {
	err := src.Check(d.Resource, d.Name, inUse)
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.unfit[keyOf(d)]
	if err == nil {
		delete(m.unfit, keyOf(d))
	} else {
		m.unfit[keyOf(d)] = err
	}
	if fmt.Sprint(was) != fmt.Sprint(err) {
		m.subscribers.tickWatchers()
	}
	return err
}

// unreserve takes a reservation back. There is at most one of a pod, because calls for one pod are serialized.
func (m *Manager) unreserve(uid string) {
	m.mu.Lock()
	_, had := m.reserved[uid]
	delete(m.reserved, uid)
	delete(m.unwritten, uid)
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
