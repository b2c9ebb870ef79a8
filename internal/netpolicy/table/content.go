package table

import (
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"

	"monopod.dev/monopod/internal/netpolicy/compile"
)

// element is one of a set: a key, of ranges the end of it, or the first key after an interval.
type element struct {
	key, keyEnd string
	after       bool
}

// content is what is in the sets: elements, and what maps give for them, by the set's name.
type content map[string]map[element]string

// contentOf is what rules put into the sets, which hold about as much as another content does. It is pure.
func contentOf(r *compile.Rules, like content) content {
	c := content{}
	for _, s := range setSpecs() {
		c[s.name] = make(map[element]string, len(like[s.name]))
	}
	for d, v := range r.Verdicts {
		for a, class := range v.Pods {
			c[podsSet(d, a)][element{key: raw(a)}] = number(class)
			if class != compile.Free {
				c[selfSet(a)][element{key: raw(a) + raw(a)}] = ""
			}
		}
		for a, class := range v.Peers {
			c[peersSet(d, a)][element{key: raw(a)}] = number(class)
		}
		for _, b := range v.Blocks {
			set := c[blocksSet(d, b.From)]
			set[element{key: raw(b.From)}] = number(b.Class)
			if next := b.To.Next(); next.IsValid() {
				set[element{key: raw(next), after: true}] = ""
			}
		}
		c.pairs(d, &v)
	}
	c.ports(r)
	return c
}

// pairs puts in what may pass between classes in one direction.
func (c content) pairs(d int, v *compile.Verdicts) {
	for p := range v.Open {
		c.put(openSet(d), element{key: number(p.Pod) + number(p.Peer)}, "")
	}
	for p, profile := range v.Ported {
		c.put(portedSet(d), element{key: number(p.Pod) + number(p.Peer)}, number(profile))
	}
}

// ports puts in what profiles have.
func (c content) ports(r *compile.Rules) {
	for p := range r.Ports {
		head := number(p.Profile) + string([]byte{p.Protocol, 0, 0, 0})
		c.put(portsSet, element{key: head + port(p.From), keyEnd: head + port(p.To)}, "")
	}
}

func (c content) put(set string, e element, value string) {
	if c[set] == nil {
		c[set] = map[element]string{}
	}
	c[set][e] = value
}

// touched are the changes that lead from the content of the rules before to that of these, which tell what they touch. It is pure.
func touched(r *compile.Rules, before content) []change {
	from, to := content{}, content{}
	look := func(set string, e element, value string, is bool) {
		if was, ok := before[set][e]; ok {
			from.put(set, e, was)
		}
		if is {
			to.put(set, e, value)
		}
	}
	for a := range r.Touched.Addresses {
		isolated := false
		for d, v := range r.Verdicts {
			class, is := v.Pods[a]
			isolated = isolated || is && class != compile.Free
			look(podsSet(d, a), element{key: raw(a)}, number(class), is)
			class, is = v.Peers[a]
			look(peersSet(d, a), element{key: raw(a)}, number(class), is)
		}
		look(selfSet(a), element{key: raw(a) + raw(a)}, "", isolated)
	}
	some := false
	for d := range r.Verdicts {
		if !r.Touched.Pairs[d] {
			continue
		}
		some = true
		from[openSet(d)], from[portedSet(d)] = before[openSet(d)], before[portedSet(d)]
		to.pairs(d, &r.Verdicts[d])
	}
	if some {
		from[portsSet] = before[portsSet]
		to.ports(r)
	}
	return changes(from, to)
}

// make makes the changes, none of which is of a set of intervals.
func (c content) make(all []change) {
	for _, ch := range all {
		for _, e := range ch.lost {
			delete(c[ch.set], e)
		}
		for e, v := range ch.got {
			c.put(ch.set, e, v)
		}
	}
}

func raw(a netip.Addr) string { return string(a.AsSlice()) }

// number is one as sets have it that are not of the network: in the machine's order.
func number[T ~uint32](n T) string {
	return string(binary.NativeEndian.AppendUint32(nil, uint32(n)))
}

// port is one in network order, filled up to the 4 bytes of a part of a key.
func port(n uint16) string { return string([]byte{byte(n >> 8), byte(n), 0, 0}) }

// change is what one set loses and gets.
type change struct {
	set      string
	lost     []element
	got      map[element]string
	replaced bool // it loses all that it has
}

// changes are what leads from one content to another, by the names of the sets. An element that gives something else is lost and got. It is pure.
func changes(from, to content) (all []change) {
	for _, s := range setSpecs() {
		ch := change{set: s.name, got: map[element]string{}}
		for e, v := range from[s.name] {
			if now, ok := to[s.name][e]; !ok || now != v {
				ch.lost = append(ch.lost, e)
			}
		}
		for e, v := range to[s.name] {
			if was, ok := from[s.name][e]; !ok || was != v {
				ch.got[e] = v
			}
		}
		if len(ch.lost) == 0 && len(ch.got) == 0 {
			continue
		}
		if s.interval {
			// Intervals are made of two elements, and the kernel looks at those beside them: what is new is put into an empty set.
			ch.replaced, ch.lost, ch.got = true, nil, to[s.name]
		}
		all = append(all, ch)
	}
	return all
}

// inLibrary are elements of a set as the library sends them, in an order that the kernel likes: by key, what ends an interval before what begins one.
func (s setSpec) inLibrary(elements map[element]string) []nftables.SetElement {
	out := make([]nftables.SetElement, 0, len(elements))
	for _, e := range slices.SortedFunc(maps.Keys(elements), ordered) {
		one := e.inLibrary()
		if s.gives && !e.after {
			one.Val = s.value(elements[e])
		}
		out = append(out, one)
	}
	return out
}

func (e element) inLibrary() nftables.SetElement {
	one := nftables.SetElement{Key: []byte(e.key), IntervalEnd: e.after}
	if e.keyEnd != "" {
		one.KeyEnd = []byte(e.keyEnd)
	}
	return one
}

func ordered(a, b element) int {
	if c := strings.Compare(a.key, b.key); c != 0 {
		return c
	}
	switch {
	case a.after == b.after:
		return strings.Compare(a.keyEnd, b.keyEnd)
	case a.after:
		return -1
	}
	return 1
}
