package book

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"monopod.dev/monopod/internal/devices/alloc"
)

// others are all pods but the one.
func (b *Book) others(uid string) iter.Seq[*pod] {
	return func(yield func(*pod) bool) {
		for other, p := range b.pods {
			if other != uid && !yield(p) {
				return
			}
		}
	}
}

// turnedAway notes that a pod was told of what others have: should one of them not keep it, it is to be told.
func (b *Book) turnedAway(uid string) {
	for p := range b.others(uid) {
		p.awaited = p.awaited || p.passes()
	}
}

// othersGrants goes through what pods but the one have, or are about to have, and through the hardware that answers have given them.
func (b *Book) othersGrants(w *World, uid string, yield func(pod Record, resource string, g Grant)) {
	for p := range b.others(uid) {
		var last Record
		for rec := range p.has {
			for _, c := range rec.Containers {
				for resource, g := range c.Grants {
					yield(rec, resource, g.Current(w, resource, b.boot))
				}
			}
			last = rec
		}
		for _, c := range p.claims {
			yield(last, c.resource, Grant{Source: c.source, Nodes: c.nodes})
		}
	}
}

// heldByOthers is the hardware that pods but the one have.
func (b *Book) heldByOthers(w *World, uid string) *alloc.Held {
	h := alloc.NewHeld()
	b.othersGrants(w, uid, func(_ Record, resource string, g Grant) {
		for _, hw := range w.hardware(resource, g) {
			h.Add(hw)
		}
	})
	return h
}

// withheldFrom counts the devices of resources that have changed their source while pods but the one have some by the source before: the new one's
// devices become free as those end. What is known by its nodes is compared, and need not be counted.
func (b *Book) withheldFrom(w *World, uid string) func(resource string) int {
	held := map[string]map[string]bool{} // by name: an init container and who it hands its device to have the same one
	b.othersGrants(w, uid, func(_ Record, resource string, g Grant) {
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

// holder is what a pod but the one has that has hardware with one of the nodes by another source; nil: none has.
func (b *Book) holder(w *World, uid, source string, nodes []string) (holder *Record) {
	b.othersGrants(w, uid, func(pod Record, resource string, o Grant) {
		if o.Source != source && alloc.NewHeld(o.hardware(resource)...).Overlays(nodes) {
			holder = &pod
		}
	})
	return holder
}

// Claim notes the hardware that a new answer gives the pod, unless somebody has it by another source. What one source shares between its own devices is its own
// business. The note holds until the grant is in a record, or Retract.
func (b *Book) Claim(w *World, uid, resource string, g Grant) *Wait {
	if holder := b.holder(w, uid, g.Source, g.Nodes); holder != nil {
		b.turnedAway(uid)
		return &Wait{resource, fmt.Errorf("its answer gives %s, which pod %s/%s has by another resource", strings.Join(g.Nodes, ", "), holder.Namespace, holder.Name)}
	}
	p := b.of(uid)
	p.claims = append(p.claims, claim{resource, g.Source, g.Nodes})
	return nil
}

// NoteHardware notes which hardware a device is, by its nodes, until ForgetHardware.
func (b *Book) NoteHardware(key Key, nodes []string) { b.hardware[key] = nodes }

// ForgetHardware forgets what NoteHardware has noted: a source has changed.
func (b *Book) ForgetHardware() { clear(b.hardware) }

// Identify is a grant of an earlier boot that is about to be answered anew, with the hardware that its devices are now, if that is nobody's else: its device
// nodes may have got the numbers of another's.
func (b *Book) Identify(w *World, uid, resource string, g Grant) (Grant, *Wait) {
	g = g.Current(w, resource, b.boot)
	if g.Boot == "" || g.Boot == b.boot {
		return g, nil
	}
	var wait *Wait
	for _, had := range g.Devices {
		d, ok := had.Find(w.Part(g.Source).Snapshot, resource)
		if !ok || len(d.Nodes) == 0 {
			continue
		}
		d.ShareOf = had.ShareOf
		b.othersGrants(w, uid, func(pod Record, other string, o Grant) {
			held := alloc.NewHeld(w.hardware(other, o)...)
			if w.isForeign(resource, g) && held.Overlays(d.Nodes) || !w.isForeign(resource, g) && held.Excludes(d) {
				wait = &Wait{resource, fmt.Errorf("device %q is %s since the machine was restarted, which pod %s/%s has", had.Name, NodeWords(d.Nodes), pod.Namespace, pod.Name)}
			}
		})
	}
	if wait != nil {
		b.turnedAway(uid)
	}
	return g, wait
}
