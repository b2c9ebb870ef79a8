package compile

// numbers gives out numbers for what has a name: the same one for as long as the name is in use, and never one that another name has had.
type numbers struct {
	of   map[string]uint32
	used map[string]bool // in this round
	next uint32
}

func newNumbers(first uint32) *numbers {
	return &numbers{of: map[string]uint32{}, used: map[string]bool{}, next: first}
}

func (n *numbers) get(name string) uint32 {
	n.used[name] = true
	id, ok := n.of[name]
	if !ok {
		id = n.next
		n.of[name] = id
		n.next++
	}
	return id
}

// sweep ends a round: what was not asked for in it is forgotten.
func (n *numbers) sweep() {
	for name := range n.of {
		if !n.used[name] {
			delete(n.of, name)
		}
	}
	clear(n.used)
}
