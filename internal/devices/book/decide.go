package book

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/topology"
)

// Advice is what sources have said when they were asked about one request.
type Advice struct {
	// Preferred are the names of the devices that a source prefers, by where: as advice, which is not followed where it does not fit. A nil entry is the answer
	// that it has no preference.
	Preferred map[Place][]string
	// Unfit are the devices that cannot be granted now, with why.
	Unfit map[Key]string
}

// Wait is what a pod waits for.
type Wait struct {
	// Resource is the name of the resource that is wanting.
	Resource string
	// Err says what is wanting of it.
	Err error
}

// Decision is what is decided about a request: Grants alone, Grants with a Question, a Wait, or a Refusal.
type Decision struct {
	// Grants are what each container gets, by name. With a Question they are what it would get without an answer to that.
	Grants map[string]Container
	// Question is what is to be asked first.
	Question *Question
	Wait     *Wait
	// Refusal says that the pod is not to have its devices.
	Refusal *topology.AffinityError

	self  waiter
	place place
	short bool // of devices that others have, or are about to have
}

// place is what becomes of a pod's place in the line.
type place int

const (
	stays  place = iota // it has one, or none, as before
	enters              // it has one from now on
	leaves              // it has none from now on
)

// Decide decides about a request. It changes nothing: Enter does.
func (b *Book) Decide(w *World, req Request, adv Advice) Decision {
	d := Decision{self: waiter{uid: req.UID, namespace: req.Namespace, name: req.Name, created: req.Created, resources: req.resources()}}
	if err := b.unknown(); err != nil {
		return d.waits(stays, slices.Min(slices.Collect(maps.Keys(d.self.resources))), err)
	}
	needs, counted, wait := b.setApart(w, req)
	if wait != nil {
		d.short = true
		return d.waits(leaves, wait.Resource, wait.Err)
	}
	for _, c := range counted {
		maps.DeleteFunc(d.self.resources, func(resource string, _ bool) bool { return c[resource] > 0 })
	}
	unfit := b.unfit(w, req.UID, adv.Unfit)
	c := choice{w: w, needs: needs, advice: adv.Preferred, aligner: b.aligner, at: req.At}
	c.has, _ = b.Record(req.UID)
	c.pool = alloc.Pool{
		Devices: w.Of, Held: b.heldByOthers(w, req.UID), Withheld: b.withheldFrom(w, req.UID),
		Unfit: func(d inventory.Device) string { return unfit[KeyOf(d)] },
	}
	var short *alloc.Shortage
	if errors.As(c.plain(), &short) {
		d.short = true
		if c.isTooMuch() {
			return d.waits(leaves, short.Resource, shortage(w, short, unfit, "; that is more than the node has, so younger pods may start first"))
		}
		return d.waits(enters, short.Resource, shortage(w, short, unfit, ""))
	}
	if o, behind := b.line.ahead(d.self); behind {
		resource := slices.Min(slices.DeleteFunc(slices.Collect(maps.Keys(d.self.resources)), func(r string) bool { return !o.resources[r] }))
		return d.waits(enters, resource, fmt.Errorf("pod %s/%s, which came first, waits for it", o.namespace, o.name))
	}
	chosen, ask, err := c.aligned()
	switch {
	case errors.As(err, &short): // what is near to each other excludes each other
		d.short = true
		return d.waits(enters, short.Resource, shortage(w, short, unfit, ""))
	case errors.As(err, &d.Refusal):
		d.place = leaves
		return d
	}
	counted.addTo(chosen, b.boot)
	d.Grants, d.Question = chosen, ask
	return d
}

// waits is the decision that the pod waits.
func (d Decision) waits(p place, resource string, err error) Decision {
	d.place, d.Wait = p, &Wait{resource, err}
	return d
}

// Enter notes a decision. What was chosen for the pod before is taken back.
func (b *Book) Enter(req Request, d Decision) News {
	news := None
	switch d.place {
	case enters:
		b.line.enter(d.self)
	case leaves:
		if b.line.leave(req.UID) {
			news = All // for those behind it
		}
	}
	if d.Grants == nil {
		news = max(news, b.Retract(req.UID))
	} else {
		p := b.of(req.UID)
		if p.awaited && p.phase == Chosen && givesUp(p.next.Containers, d.Grants) {
			news = All
		}
		p.phase, p.next, p.claims = Chosen, Record{Namespace: req.Namespace, Name: req.Name, Containers: d.Grants}, nil
	}
	if d.short {
		b.turnedAway(req.UID)
	}
	return news
}

// unknown says why it is not known who has which devices.
func (b *Book) unknown() error {
	if !b.compared {
		return errors.New("which devices are in use is not known before the runtime has told what runs")
	}
	for _, err := range b.Damages() {
		return fmt.Errorf("which devices are in use is not known for sure until the pod of a damaged ledger record is deleted: %w", err)
	}
	return nil
}

// unfit adds to the devices that cannot be granted those that are hardware which pods but the one have by another resource.
func (b *Book) unfit(w *World, uid string, all map[Key]string) map[Key]string {
	added := false
	for key, nodes := range b.hardware {
		owner := w.Owner(key.Resource)
		if owner == "" {
			continue
		}
		if holder := b.holder(w, uid, owner, nodes); holder != nil {
			if !added {
				all, added = maps.Clone(all), true
			}
			if all == nil {
				all = map[Key]string{}
			}
			all[key] = fmt.Sprintf("device %q is %s, which pod %s/%s has by another resource", key.Name, strings.Join(nodes, ", "), holder.Namespace, holder.Name)
		}
	}
	return all
}
