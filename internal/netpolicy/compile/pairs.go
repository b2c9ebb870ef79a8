package compile

import (
	"slices"
)

// pairs are what may pass between classes.
type pairs struct {
	used   usedClasses
	open   map[Pair]bool
	ported map[Pair]Profile
	lists  map[Profile][]span
}

// pair finds out what may pass between the classes that are in use, and notes the ports of the profiles. Where the classes are those of last time, it is what it
// was then.
func (c *Compiler) pair(d Direction, used usedClasses, all map[PortRange]bool) {
	last := c.pairs[d]
	if last == nil || !sameKeys(last.used.pods, used.pods) || !sameKeys(last.used.peers, used.peers) {
		last = c.paired(d, used)
		c.pairs[d] = last
	}
	for profile, list := range last.lists {
		c.profiles.get(written(list)) // so that it keeps its number
		for _, s := range list {
			all[PortRange{profile, s.protocol, s.from, s.to}] = true
		}
	}
}

func sameKeys[V any](a, b map[Class]V) bool {
	if len(a) != len(b) {
		return false
	}
	for k := range a {
		if _, ok := b[k]; !ok {
			return false
		}
	}
	return true
}

// paired is pair where nothing is known yet. Only pairs that something is said of are looked at.
func (c *Compiler) paired(d Direction, used usedClasses) *pairs {
	out := &pairs{used: used, open: map[Pair]bool{}, ported: map[Pair]Profile{}, lists: map[Profile][]span{}}
	byAtom := map[string][]Class{}
	for class, p := range used.peers {
		for _, a := range p.atoms {
			byAtom[a] = append(byAtom[a], class)
		}
	}
	spans := map[Pair][]span{}
	for class, of := range used.pods {
		for _, p := range of.policies {
			for i := range p.rules[d] {
				c.apply(d, class, of, &p.rules[d][i], used, byAtom, out.open, spans)
			}
		}
	}
	for pair, list := range spans {
		if out.open[pair] || out.open[Pair{pair.Pod, Anybody}] {
			continue
		}
		list = merged(list)
		profile := Profile(c.profiles.get(written(list)))
		out.ported[pair], out.lists[profile] = profile, list
	}
	return out
}

// apply notes what one rule lets pass to or from the pods of a class.
func (c *Compiler) apply(d Direction, class Class, of *podClass, r *rule, used usedClasses, byAtom map[string][]Class, open map[Pair]bool, spans map[Pair][]span) {
	let := func(peer Class, meaning map[name][]uint16) {
		pair := Pair{class, peer}
		if r.ports.all {
			open[pair] = true
		} else if list := r.ports.resolved(meaning); len(list) > 0 {
			spans[pair] = append(spans[pair], list...)
		}
	}
	// A name is that of a port where the connection goes to: of the pod itself, or of the peer.
	meaning := func(peer Class) map[name][]uint16 {
		if d == Ingress {
			return of.meaning
		}
		if p := used.peers[peer]; p != nil {
			return p.meaning
		}
		return nil
	}
	if !r.anybody {
		for _, a := range r.atoms {
			for _, peer := range byAtom[a] {
				let(peer, meaning(peer))
			}
		}
		return
	}
	let(Anybody, meaning(Anybody))
	if d == Ingress || len(r.ports.named) == 0 {
		return
	}
	for peer, p := range used.peers {
		if slices.ContainsFunc(r.ports.named, func(n name) bool { return len(p.meaning[n]) > 0 }) {
			let(peer, p.meaning)
		}
	}
}
