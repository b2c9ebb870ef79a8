package table

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"monopod.dev/monopod/internal/kit/iprange"
	"monopod.dev/monopod/internal/proxy/plan"
)

// item is an element with its value.
type item struct {
	element
	value string
}

func compareItems(a, b item) int { return compareElements(a.element, b.element) }

func compareElements(a, b element) int {
	return cmp.Or(cmp.Compare(a.set.kind, b.set.kind), cmp.Compare(a.set.family, b.set.family), strings.Compare(a.key, b.key))
}

// orders are the endpoints of lists by their numbers.
type orders map[listID][]netip.AddrPort

// itemsOf are the elements of a plan, in order, each once. before is the order that endpoints had; what stays keeps its number as far as that leaves no gap,
// so that the coming or going of one endpoint changes one or two elements.
func itemsOf(p plan.Service, before orders) (items []item, after orders) {
	after = orders{}
	add := func(k kind, f int, key, value string) {
		items = append(items, item{element{setID{k, uint8(f)}, key}, value})
	}
	target := func(k kind, f plan.Front, t plan.Target) {
		w := wayOf(t, p.Lists[t.List])
		var id listID
		var flags uint32
		if t.Action == plan.Balance {
			id = idOf(t.List)
		}
		if t.Masquerade {
			flags |= flagMasquerade
		}
		add(k, familyOf(f.Addr), string(frontKey(f)), concat(native(0), native(flags), native(uint32(w)), id[:]))
	}
	for f, t := range p.Inside {
		target(services, f, t)
	}
	for f, t := range p.Outside {
		target(outside, f, t)
	}
	for name, l := range p.Lists {
		id := idOf(name)
		order := place(before[id], l.Endpoints)
		after[id] = order
		fam := familyOf(order[0].Addr())
		for i, e := range order {
			add(endpoints, fam, concat(id[:], native(uint32(i))), string(endpointBytes(e)))
			if l.Affinity > 0 {
				add(members, fam, concat(id[:], endpointBytes(e)), "")
			}
		}
	}
	for _, a := range p.Addresses {
		add(own, familyOf(a), string(a.AsSlice()), "")
	}
	for f, ranges := range p.Ranges {
		key := frontKey(f)
		add(limited, familyOf(f.Addr), string(key), "")
		for _, r := range ranges {
			add(allowed, familyOf(f.Addr), concat(key, r.Addr().AsSlice(), key, iprange.Of(r).Last.AsSlice()), "")
		}
	}
	for e := range p.Local {
		a := e.At.Addr()
		add(hairpin, familyOf(a), concat(a.AsSlice(), a.AsSlice()), "")
	}
	slices.SortFunc(items, compareItems)
	return slices.CompactFunc(items, func(a, b item) bool { return a.element == b.element }), after
}

// wayKey is where connections go a way: those that are looked up in services or in outside, of a family.
type wayKey struct {
	set setID
	way way
}

// wayOfValue reads the way of an element of services or outside.
func wayOfValue(e element, value string) (wayKey, bool) {
	if e.set.kind != services && e.set.kind != outside || len(value) != 20 {
		return wayKey{}, false
	}
	return wayKey{e.set, way(binary.NativeEndian.Uint32([]byte(value[8:12])))}, true
}

// place gives each endpoint a number from 0 on: those that had one that is still among them keep it, the others fill what is left.
func place(before, want []netip.AddrPort) []netip.AddrPort {
	order := make([]netip.AddrPort, len(want))
	placed := map[netip.AddrPort]bool{}
	for i, e := range before {
		if _, in := slices.BinarySearchFunc(want, e, netip.AddrPort.Compare); in && i < len(order) && !placed[e] {
			order[i], placed[e] = e, true
		}
	}
	next := 0
	for _, e := range want {
		if placed[e] {
			continue
		}
		for order[next].IsValid() {
			next++
		}
		order[next] = e
	}
	return order
}

// ordersOf reads the numbers of endpoints from elements, as the kernel has them.
func ordersOf(have map[element]string) orders {
	out := orders{}
	for e, value := range have {
		at, ok := endpointOf(value)
		if e.set.kind != endpoints || len(e.key) != 12 || !ok {
			continue
		}
		id, i := listID([]byte(e.key[:8])), int(binary.NativeEndian.Uint32([]byte(e.key[8:])))
		if i >= plan.MaxEndpoints {
			continue
		}
		for len(out[id]) <= i {
			out[id] = append(out[id], netip.AddrPort{})
		}
		out[id][i] = at
	}
	return out
}
