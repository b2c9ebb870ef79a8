package table

import (
	"github.com/google/nftables"
)

// operation is what is done about an element: it had a value or none, and has another or none.
type operation struct {
	had, has     bool
	from, to     string
	owner, loser string // of the new value, and who would like another one
}

// operations are what is done about elements, together.
type operations map[element]operation

// changes says whether anything is left to do.
func (o operation) changes() bool { return o.had != o.has || o.from != o.to }

// ways are those that what is done needs.
func (ops operations) ways() map[wayKey]bool {
	needed := map[wayKey]bool{}
	for el, op := range ops {
		if k, ok := wayOfValue(el, op.to); ok && op.has {
			needed[k] = true
		}
	}
	return needed
}

// elements are those that go, and those that come after that, by their sets.
func (ops operations) elements() (gone, come map[setID][]nftables.SetElement) {
	gone, come = map[setID][]nftables.SetElement{}, map[setID][]nftables.SetElement{}
	for el, op := range ops {
		if !op.changes() {
			continue
		}
		if op.had {
			gone[el.set] = append(gone[el.set], setElement(el, "", ""))
		}
		if op.has {
			come[el.set] = append(come[el.set], setElement(el, op.to, op.owner))
		}
	}
	return gone, come
}

// setElement is an element as the kernel is told of it, with whose it is for people who look at it.
func setElement(el element, value, owner string) nftables.SetElement {
	e := nftables.SetElement{Key: []byte(el.key)}
	switch el.set.kind {
	case allowed:
		half := len(el.key) / 2
		e.Key, e.KeyEnd = e.Key[:half], e.Key[half:]
	case services, outside, endpoints:
		if value != "" {
			e.Val = []byte(value)
		}
		e.Comment = owner[:min(len(owner), maxComment)]
	}
	return e
}

// maxComment is what an element's user data has room for.
const maxComment = 120
