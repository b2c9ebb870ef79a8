package table

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"monopod.dev/monopod/internal/proxy/plan"
)

// An endpoint that comes or goes changes a number or two, whatever there is of others. It is pure.
func TestPlaceKeepsNumbers(t *testing.T) {
	ends := func(n ...int) (out []netip.AddrPort) {
		for _, i := range n {
			out = append(out, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80))
		}
		slices.SortFunc(out, netip.AddrPort.Compare)
		return out
	}
	r := rand.New(rand.NewPCG(1, 2))
	var order []netip.AddrPort
	have := map[int]bool{}
	for range 1000 {
		changed := r.IntN(40)
		if have[changed] {
			delete(have, changed)
		} else {
			have[changed] = true
		}
		var want []int
		for i := range have {
			want = append(want, i)
		}
		next := place(order, ends(want...))
		sorted := slices.Clone(next)
		slices.SortFunc(sorted, netip.AddrPort.Compare)
		if !slices.Equal(sorted, ends(want...)) {
			t.Fatalf("placed %v, want those of %v", next, want)
		}
		moved := 0
		for i := range min(len(order), len(next)) {
			if order[i] != next[i] {
				moved++
			}
		}
		if moved > 1 {
			t.Fatalf("%d of %d have got another number", moved, len(next))
		}
		order = next
	}
}

// testService is one with an address and endpoints of its own, by its number.
func testService(i, ends int) Service {
	p := plan.Service{Inside: map[plan.Front]plan.Target{}, Lists: map[string]plan.List{}, Local: map[plan.LocalEndpoint]bool{}}
	list := fmt.Sprint("list ", i)
	vip := netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})
	l := plan.List{Protocol: 6}
	for e := range ends {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(100 + e>>8), byte(i >> 8), byte(i)}), uint16(8000+e%200))
		l.Endpoints = append(l.Endpoints, at)
		p.Local[plan.LocalEndpoint{Protocol: 6, At: at}] = true
	}
	slices.SortFunc(l.Endpoints, netip.AddrPort.Compare)
	p.Lists[list] = l
	p.Inside[plan.Front{Protocol: 6, Addr: vip, Port: 80}] = plan.Target{List: list}
	p.Addresses = []netip.Addr{vip}
	return Service{Plan: p}
}

// Of two services that want the same the elder has it; what both want stays until both are gone. It is pure.
func TestTheElderHasIt(t *testing.T) {
	front := plan.Front{Protocol: 6, Addr: netip.MustParseAddr("192.0.2.1"), Port: 80}
	of := func(name string, age time.Duration, port uint16) *entry {
		end := netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), port)
		return entryOf(name, Service{Created: time.Unix(1000, 0).Add(-age), Plan: plan.Service{
			Inside: map[plan.Front]plan.Target{front: {List: name}}, Lists: map[string]plan.List{name: {Protocol: 6, Endpoints: []netip.AddrPort{end}}},
			Local: map[plan.LocalEndpoint]bool{{Protocol: 6, At: end}: true},
		}}, nil)
	}
	young, old := of("a/young", time.Second, 1), of("b/old", time.Minute, 2)
	hairpins := element{setID{hairpin, 0}, "\x0a\x00\x00\x01\x0a\x00\x00\x01"}
	for _, sequence := range [][]*entry{{young, old}, {old, young}} {
		b := newBook()
		for _, e := range sequence {
			b.replace(e.name, e, operations{})
		}
		if c := b.wanted[frontElement(services, front)]; c.first != old {
			t.Errorf("%s has it", c.first.name)
		}
		ops := operations{}
		b.replace(old.name, nil, ops)
		if op := ops[frontElement(services, front)]; !op.changes() || op.owner != young.name {
			t.Errorf("when the elder goes: %+v", op)
		}
		if op := ops[hairpins]; op.changes() {
			t.Errorf("what both want is changed: %+v", op)
		}
		b.replace(young.name, nil, ops)
		if op := ops[hairpins]; op.has || !op.changes() || len(b.wanted) != 0 {
			t.Errorf("when both are gone: %+v, %d are wanted", op, len(b.wanted))
		}
	}
}

// Whatever sequence of changes, what they add up to is what a new start would make. It is pure.
func TestChangesAddUp(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	b, kernel := newBook(), map[element]string{}
	for range 500 {
		ops := operations{}
		for range 1 + r.IntN(3) {
			i := r.IntN(10)
			name := fmt.Sprint("service ", i)
			var next *entry
			if ends := r.IntN(6); ends > 0 {
				var numbers orders
				if old := b.services[name]; old != nil {
					numbers = old.orders
				}
				next = entryOf(name, testService(i%7, ends), numbers) // some have the same address
			}
			b.replace(name, next, ops)
		}
		for el, op := range ops {
			if have, there := kernel[el]; there != op.had || have != op.from {
				t.Fatalf("the kernel has %q (%v), the operation is %+v", have, there, op)
			}
			if delete(kernel, el); op.has {
				kernel[el] = op.to
			}
		}
		if left := b.difference(kernel); len(left) > 0 {
			t.Fatalf("%d elements differ", len(left))
		}
	}
	// A start reads the numbers of endpoints back.
	again := newBook()
	for name, e := range b.services {
		again.replace(name, entryOf(name, Service{Plan: e.plan}, ordersOf(kernel)), operations{})
	}
	if left := again.difference(kernel); len(left) > 0 {
		t.Errorf("a start would change %d elements", len(left))
	}
}
