package compile

// numbers gives out numbers for what has a name: the same one for as long as the name is in use, and never one that another name has had.
type numbers struct {
	of   map[string]*numbered
	idle map[string]bool // names that nobody uses, until the end of the round
	next uint32
}

type numbered struct {
	id   uint32
	uses int
}

func newNumbers(first uint32) *numbers {
	return &numbers{of: map[string]*numbered{}, idle: map[string]bool{}, next: first}
}

// take takes a name into use once more; first says that nobody used it.
func (n *numbers) take(name string) (id uint32, first bool) {
	one := n.of[name]
	if one == nil {
		one = &numbered{id: n.next}
		n.of[name] = one
		n.next++
	}
	if one.uses++; one.uses == 1 {
		delete(n.idle, name)
	}
	return one.id, one.uses == 1
}

// drop is one use less; last says that nobody uses it now.
func (n *numbers) drop(name string) (id uint32, last bool) {
	one := n.of[name]
	if one.uses--; one.uses == 0 {
		n.idle[name] = true
	}
	return one.id, one.uses == 0
}

// restart forgets all uses. A name that comes into use again before the round ends keeps its number.
func (n *numbers) restart() {
	for name, one := range n.of {
		one.uses = 0
		n.idle[name] = true
	}
}

// sweep ends a round: what nobody uses is forgotten.
func (n *numbers) sweep() {
	for name := range n.idle {
		delete(n.of, name)
	}
	clear(n.idle)
}
