package compile

import (
	"slices"
)

// pairs are what may pass between classes.
type pairs struct {
	open   map[Pair]bool
	ported map[Pair]Profile
	lists  map[Profile][]span
	// profiles are the names of those that are in use, once for each use.
	profiles []string
}

// pair finds out what may pass between the classes that are in use, and notes the ports of the profiles, where that is not what it was.
func (c *Compiler) pair() {
	r := &c.state.rules
	if !c.state.dirty[Ingress] && !c.state.dirty[Egress] {
		return
	}
	for d := range Directions {
		if !c.state.dirty[d] {
			continue
		}
		last := c.pairs[d]
		c.pairs[d] = c.paired(Direction(d), c.state.used[d])
		if last != nil {
			for _, name := range last.profiles {
				c.profiles.drop(name)
			}
		}
		r.Verdicts[d].Open, r.Verdicts[d].Ported = c.pairs[d].open, c.pairs[d].ported
		c.state.dirty[d] = false
	}
	r.Ports = map[PortRange]bool{}
	for d := range Directions {
		for profile, list := range c.pairs[d].lists {
			for _, s := range list {
				r.Ports[PortRange{profile, s.protocol, s.from, s.to}] = true
			}
		}
	}
}

// paired is what may pass between these classes. Only pairs that something is said of are looked at.
func (c *Compiler) paired(d Direction, used usedClasses) *pairs {
	out := &pairs{open: map[Pair]bool{}, ported: map[Pair]Profile{}, lists: map[Profile][]span{}}
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
		name := written(list)
		n, _ := c.profiles.take(name)
		profile := Profile(n)
		out.ported[pair], out.lists[profile], out.profiles = profile, list, append(out.profiles, name)
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
