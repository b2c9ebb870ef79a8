package topology

// Affinity is where devices are to come from.
type Affinity struct {
	// Mask is the set of nodes; empty: there is nothing to align.
	Mask Mask
	// Preferred: it is what every request prefers. Without that, not every request can be met from the set.
	Preferred bool
}

// Align is Merge of the Hints of each request, which are all of one container, or of one pod: see Scope.
func (a *Aligner) Align(reqs []Request) (Affinity, error) {
	hints := make([]Hints, 0, len(reqs))
	for _, req := range reqs {
		hints = append(hints, a.Hints(req))
	}
	return a.Merge(hints)
}

// Merge finds the best that the requests have in common, each of them with its Hints. The error, an *AffinityError, is the policy's refusal.
func (a *Aligner) Merge(hints []Hints) (Affinity, error) {
	if a.Policy() == None {
		return Affinity{}, nil
	}
	var picky []Hints
	for _, h := range hints {
		if !h.Any {
			picky = append(picky, h)
		}
	}
	if len(picky) == 0 {
		return Affinity{Preferred: true}, nil
	}
	if m := a.common(picky); m != 0 {
		return Affinity{Mask: m, Preferred: true}, nil
	}
	if a.policy != BestEffort {
		return Affinity{}, a.refusal(picky)
	}
	return Affinity{Mask: a.compromise(picky)}, nil
}

// admissible says whether a hint is one of those that an affinity which is preferred can be made of.
func (a *Aligner) admissible(h Hint) bool {
	return h.Preferred && h.Mask != 0 && (a.policy != SingleNUMANode || h.Mask.Count() == 1)
}

// common is the best set that all resources prefer, or empty.
func (a *Aligner) common(all []Hints) Mask {
	var (
		best  Mask
		agree = make([]int, a.everyNode()+1) // how many resources, from the first on without a gap, prefer a set
	)
	for i, hints := range all {
		for _, h := range hints.Sets {
			if !a.admissible(h) || agree[h.Mask] != i {
				continue
			}
			agree[h.Mask]++
			if i == len(all)-1 && (best == 0 || a.compare(h.Mask, best, 0) < 0) {
				best = h.Mask
			}
		}
	}
	return best
}

// compromise is the best set that is the intersection of one hint of each resource that has any; all nodes where every intersection is empty.
func (a *Aligner) compromise(all []Hints) Mask {
	var (
		reached []uint64
		want    int // nodes of the resource that needs the most
	)
	for _, hints := range all {
		if len(hints.Sets) == 0 {
			continue // it cannot be aligned, and is no reason not to align the others
		}
		sets, narrowest := make([]uint64, a.everyNode()+1), len(a.ids)
		for _, h := range hints.Sets {
			sets[h.Mask] = 1
			narrowest = min(narrowest, h.Mask.Count())
		}
		want = max(want, narrowest)
		if reached == nil {
			reached = sets
		} else {
			meet(reached, sets)
		}
	}
	var best Mask
	for m := range reached {
		if m := Mask(m); m != 0 && reached[m] != 0 && (best == 0 || a.compare(m, best, want) < 0) {
			best = m
		}
	}
	if best == 0 {
		return a.everyNode()
	}
	return best
}

// meet makes x, in which sets of nodes are marked by 1, the sets that are the intersection of one of x and one of y. It uses up y.
//
// The intersection of two sets contains a set exactly when both do. So the number of pairs whose intersection contains a set is a product, of how many
// in x contain it and how many in y do; and from these numbers, of at most 2^MaxNodes squared, those of the pairs that make exactly the set come
// back by subtraction. Each way is one pass a node.
func meet(x, y []uint64) {
	supersets(x)
	supersets(y)
	for i := range x {
		x[i] *= y[i]
	}
	for bit := 1; bit < len(x); bit <<= 1 {
		for i := range x {
			if i&bit == 0 {
				x[i] -= x[i|bit]
			}
		}
	}
	for i := range x {
		x[i] = min(x[i], 1)
	}
}

// supersets makes of each set's number the sum of those of all sets that contain it.
func supersets(x []uint64) {
	for bit := 1; bit < len(x); bit <<= 1 {
		for i := range x {
			if i&bit == 0 {
				x[i] += x[i|bit]
			}
		}
	}
}
