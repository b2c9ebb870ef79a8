package table

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"monopod.dev/monopod/internal/proxy/plan"
)

// book is which elements are wanted, and for which services. It is pure.
//
// Of several services that want the same element with different values, which only happens where people name addresses themselves, the one that was there
// first has it; it passes on when that one goes.
type book struct {
	services map[string]*entry
	wanted   map[element]claim
}

// entry is what a service has.
type entry struct {
	name string
	// rank is by when the service was made, and then by name.
	rank   string
	items  []item
	orders orders
	plan   plan.Service
}

// claim says who wants an element: mostly a single service.
type claim struct {
	first *entry // the one who has it
	more  []*entry
}

func newBook() *book {
	return &book{services: map[string]*entry{}, wanted: map[element]claim{}}
}

// value is what the entry wants of an element.
func (e *entry) value(el element) string {
	i, found := slices.BinarySearchFunc(e.items, el, func(it item, el element) int { return compareElements(it.element, el) })
	if !found {
		return ""
	}
	return e.items[i].value
}

// replace puts an entry in the place of the one of the same name, which may be nil, as the new one may be, and adds what follows to the operations.
func (b *book) replace(name string, next *entry, ops operations) (previous *entry) {
	previous = b.services[name]
	touched := map[element]bool{}
	for _, e := range []*entry{previous, next} {
		if e == nil {
			continue
		}
		for _, it := range e.items {
			touched[it.element] = true
		}
	}
	for el := range touched {
		c, had := b.wanted[el]
		op, begun := ops[el]
		if !begun {
			op.had = had
			if had {
				op.from = c.first.value(el)
			}
		}
		c = c.without(previous)
		if next != nil && next.has(el) {
			c = c.with(next)
		}
		op.has, op.to, op.owner, op.loser = false, "", "", ""
		if c.first == nil {
			delete(b.wanted, el)
		} else {
			b.wanted[el] = c
			op.has, op.to, op.owner = true, c.first.value(el), c.first.name
			for _, o := range c.more {
				if o.value(el) != op.to {
					op.loser = o.name
				}
			}
		}
		ops[el] = op
	}
	delete(b.services, name)
	if next != nil {
		b.services[name] = next
	}
	return previous
}

// put puts entries in the place of those of the same names, of which nil is none, and returns what follows, and what there was before: put again, that undoes it.
func (b *book) put(entries map[string]*entry) (ops operations, before map[string]*entry) {
	ops, before = operations{}, map[string]*entry{}
	for name, next := range entries {
		before[name] = b.replace(name, next, ops)
	}
	return ops, before
}

// entriesOf are the entries of services, nil those of services that are gone. Endpoints keep the numbers that they have.
func (b *book) entriesOf(changes map[string]*Service) map[string]*entry {
	entries := map[string]*entry{}
	for name, s := range changes {
		entries[name] = nil
		if s != nil {
			var numbers orders
			if old := b.services[name]; old != nil {
				numbers = old.orders
			}
			entries[name] = entryOf(name, *s, numbers)
		}
	}
	return entries
}

func entryOf(name string, s Service, numbers orders) *entry {
	e := &entry{name: name, rank: fmt.Sprintf("%020d", max(s.Created.Unix(), 0)), plan: s.Plan}
	e.items, e.orders = itemsOf(s.Plan, numbers)
	return e
}

func (e *entry) has(el element) bool {
	_, found := slices.BinarySearchFunc(e.items, el, func(it item, el element) int { return compareElements(it.element, el) })
	return found
}

func (c claim) without(e *entry) claim {
	if e == nil {
		return c
	}
	all := slices.DeleteFunc(c.all(), func(o *entry) bool { return o == e })
	return claimOf(all)
}

func (c claim) with(e *entry) claim {
	all := append(c.all(), e)
	slices.SortFunc(all, func(a, b *entry) int { return cmp.Or(strings.Compare(a.rank, b.rank), strings.Compare(a.name, b.name)) })
	return claimOf(all)
}

func (c claim) all() []*entry {
	if c.first == nil {
		return nil
	}
	return append([]*entry{c.first}, c.more...)
}

func claimOf(all []*entry) (c claim) {
	if len(all) > 0 {
		c.first, c.more = all[0], slices.Clip(all[1:])
	}
	if len(c.more) == 0 {
		c.more = nil
	}
	return c
}

// difference is what makes of what there is what is wanted.
func (b *book) difference(have map[element]string) operations {
	ops := operations{}
	for el, value := range have {
		c, wanted := b.wanted[el]
		if !wanted {
			ops[el] = operation{had: true, from: value}
		} else if to := c.first.value(el); to != value {
			ops[el] = operation{had: true, from: value, has: true, to: to, owner: c.first.name}
		}
	}
	for el, c := range b.wanted {
		if _, there := have[el]; !there {
			ops[el] = operation{has: true, to: c.first.value(el), owner: c.first.name}
		}
	}
	return ops
}

// ways are those that services need.
func (b *book) ways() map[wayKey]bool {
	out := map[wayKey]bool{}
	for _, e := range b.services {
		for _, it := range e.items {
			if k, ok := wayOfValue(it.element, it.value); ok {
				out[k] = true
			}
		}
	}
	return out
}
