package topology

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"monopod.dev/monopod/internal/devices/inventory"
)

// What follows is the definition, word by word and without regard to cost; the package's answers are held against it.

// defSet is a set of node ids, ascending.
type defSet []int

type defHint struct {
	nodes     defSet
	preferred bool
}

func (s defSet) has(id int) bool { return slices.Contains(s, id) }

func (s defSet) touches(d inventory.Device) bool { return slices.ContainsFunc(d.NUMA, s.has) }

// before compares sets of one size by their nodes: the one without the highest node in which they differ.
func (s defSet) before(o defSet) bool {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] != o[i] {
			return s[i] < o[i]
		}
	}
	return false
}

// subsetsOf lists all subsets but the empty one.
func subsetsOf(ids defSet) []defSet {
	if len(ids) == 0 {
		return nil
	}
	rest := subsetsOf(ids[1:])
	all := append([]defSet{{ids[0]}}, rest...)
	for _, s := range rest {
		all = append(all, append(defSet{ids[0]}, s...))
	}
	return all
}

// defHints is nil, false where there is no preference.
func defHints(host defSet, req Request) (hints []defHint, picky bool) {
	var near defSet
	for _, id := range host {
		if slices.ContainsFunc(req.Devices, func(d inventory.Device) bool { return slices.Contains(d.NUMA, id) }) {
			near = append(near, id)
		}
	}
	if len(near) == 0 || req.Count <= 0 {
		return nil, false
	}
	touching := func(s defSet, devices []inventory.Device) (n int) {
		for _, d := range devices {
			if s.touches(d) {
				n++
			}
		}
		return n
	}
	smallest := len(near)
	for _, s := range subsetsOf(near) {
		if touching(s, req.Devices) >= req.Count {
			smallest = min(smallest, len(s))
		}
	}
	for _, s := range subsetsOf(near) {
		handed := touching(s, req.HandedDown)
		if handed < min(touching(near, req.HandedDown), req.Count) || handed+touching(s, req.Available) < req.Count {
			continue
		}
		hints = append(hints, defHint{s, len(s) == smallest})
	}
	return hints, true
}

type defMerger struct {
	host    defSet
	policy  Policy
	closest bool
	// distance between two ids.
	distance func(from, to int) int
	want     int
}

// merge goes through the whole cross product. The second result is whether the policy admits it.
func (d *defMerger) merge(all [][]defHint, picky []bool) (best *defHint, admitted bool) {
	if d.policy == None {
		return &defHint{}, true
	}
	anybody := false
	for i := range all {
		if !picky[i] {
			continue
		}
		anybody = true
		least := 0
		for _, h := range all[i] {
			if least == 0 || len(h.nodes) < least {
				least = len(h.nodes)
			}
		}
		d.want = max(d.want, least)
	}
	if !anybody {
		return &defHint{preferred: true}, true
	}
	var walk func(i int, chosen []defHint)
	walk = func(i int, chosen []defHint) {
		if i == len(all) {
			if h := d.combine(chosen); len(h.nodes) > 0 && (best == nil || d.better(h, *best)) {
				best = &h
			}
			return
		}
		switch {
		case !picky[i]:
			walk(i+1, chosen)
		case len(all[i]) == 0:
			walk(i+1, append(slices.Clone(chosen), defHint{nodes: nil, preferred: false}))
		default:
			for _, h := range all[i] {
				if d.policy != SingleNUMANode || h.preferred && len(h.nodes) == 1 {
					walk(i+1, append(slices.Clone(chosen), h))
				}
			}
		}
	}
	walk(0, nil)
	if best == nil {
		best = &defHint{nodes: d.host}
	}
	return best, d.policy == BestEffort || best.preferred
}

// combine has nil nodes for the hint of a resource that cannot be aligned.
func (d *defMerger) combine(chosen []defHint) defHint {
	h := defHint{nodes: d.host, preferred: true}
	var first defSet
	for _, c := range chosen {
		h.preferred = h.preferred && c.preferred
		if c.nodes == nil {
			continue
		}
		if first == nil {
			first = c.nodes
		}
		h.preferred = h.preferred && slices.Equal(first, c.nodes)
		h.nodes = slices.DeleteFunc(slices.Clone(h.nodes), func(id int) bool { return !c.nodes.has(id) })
	}
	return h
}

func (d *defMerger) better(candidate, current defHint) bool {
	if candidate.preferred != current.preferred {
		return candidate.preferred
	}
	nc, nb := len(candidate.nodes), len(current.nodes)
	switch {
	case nc == nb:
		if d.closest && d.policy != SingleNUMANode {
			if mc, mb := d.mean(candidate.nodes), d.mean(current.nodes); mc != mb {
				return mc < mb
			}
		}
		return candidate.nodes.before(current.nodes)
	case candidate.preferred || nb > d.want && nc > d.want:
		return nc < nb
	case nb > d.want || nc > d.want:
		return nc < nb // the one that is not above
	default:
		return nc > nb
	}
}

func (d *defMerger) mean(nodes defSet) float64 {
	sum := 0
	for _, from := range nodes {
		for _, to := range nodes {
			sum += d.distance(from, to)
		}
	}
	return float64(sum) / float64(len(nodes)*len(nodes))
}

// randomNodes are up to five nodes whose ids have gaps, listed in any order, with few different distances so that there are ties.
func randomNodes(rnd *rand.Rand) (host defSet, nodes []Node, distance func(from, to int) int) {
	for id := rnd.IntN(3); len(host) < 1+rnd.IntN(5); id += 1 + rnd.IntN(70) {
		host = append(host, id)
	}
	matrix := map[[2]int]int{}
	for _, from := range host {
		n := Node{ID: from}
		for _, to := range host {
			dist := 10
			if from != to {
				dist = []int{11, 20, 21}[rnd.IntN(3)]
			}
			matrix[[2]int{from, to}] = dist
			n.Distances = append(n.Distances, dist)
		}
		nodes = append(nodes, n)
	}
	rnd.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	return host, nodes, func(from, to int) int { return matrix[[2]int{from, to}] }
}

// randomRequest has devices of one node, of several, of none, and of nodes that the host does not have.
func randomRequest(rnd *rand.Rand, host defSet, resource string) Request {
	req := Request{Resource: resource, Count: rnd.IntN(5)}
	some := host[:1+rnd.IntN(len(host))] // a resource often is near to some nodes only
	for i := range rnd.IntN(8) {
		d := inventory.Device{Resource: resource, Name: fmt.Sprint(i)}
		for range rnd.IntN(3) {
			d.NUMA = append(d.NUMA, some[rnd.IntN(len(some))])
		}
		if rnd.IntN(8) == 0 {
			d.NUMA = append(d.NUMA, 1000+i)
		}
		req.Devices = append(req.Devices, d)
		switch rnd.IntN(6) {
		case 0: // taken or unhealthy
		case 1:
			req.HandedDown = append(req.HandedDown, d)
		default:
			req.Available = append(req.Available, d)
		}
	}
	return req
}

// hold fails the test unless the package's answer to the requests is the definition's, and says of which kind that is.
func hold(t *testing.T, cfg Config, host defSet, distance func(from, to int) int, reqs []Request) (kind string) {
	t.Helper()
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var (
		hints [][]defHint
		picky []bool
		said  []Hints
	)
	for _, req := range reqs {
		want, isPicky := defHints(host, req)
		hints, picky = append(hints, want), append(picky, isPicky)
		got := a.Hints(req)
		said = append(said, got)
		if a.policy == None {
			continue
		}
		if got.Any == isPicky || len(got.Sets) != len(want) {
			t.Fatalf("nodes %v, %+v:\ngot  %+v\nwant %v (a preference: %v)", host, req, got, want, isPicky)
		}
		for _, h := range got.Sets {
			if !slices.ContainsFunc(want, func(w defHint) bool { return slices.Equal(w.nodes, a.IDs(h.Mask)) && w.preferred == h.Preferred }) {
				t.Fatalf("nodes %v, %+v:\ngot  %v preferred %v\nwant %v", host, req, a.IDs(h.Mask), h.Preferred, want)
			}
		}
	}
	d := defMerger{host: host, policy: cfg.Policy, closest: cfg.Options[OptionClosest] == "true", distance: distance}
	want, admitted := d.merge(hints, picky)
	got, err := a.Merge(said)
	if (err == nil) != admitted {
		t.Fatalf("%+v\nnodes %v, hints %v: got %v, %v; want %+v, admitted %v", cfg, host, hints, got, err, *want, admitted)
	}
	if admitted && (!slices.Equal(a.IDs(got.Mask), want.nodes) || got.Preferred != want.preferred) {
		t.Fatalf("%+v\nnodes %v, hints %v: got %v preferred %v, want %+v", cfg, host, hints, a.IDs(got.Mask), got.Preferred, *want)
	}
	switch {
	case err != nil:
		return "refused"
	case got.Mask == 0:
		return "nothing to align"
	case got.Preferred:
		return "preferred"
	case got.Mask == a.everyNode():
		return "all nodes"
	}
	return "compromise"
}

var policies = []Policy{None, BestEffort, Restricted, SingleNUMANode}

// TestAnswersAreTheDefinitions: what is computed is what the whole cross product gives, for every policy and option.
func TestAnswersAreTheDefinitions(t *testing.T) {
	const seed = 20261122
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	kinds := map[string]int{}
	for range 8000 {
		host, nodes, distance := randomNodes(rnd)
		var reqs []Request
		for i := range 1 + rnd.IntN(3) {
			reqs = append(reqs, randomRequest(rnd, host, fmt.Sprintf("r%d.example.com/x", i)))
		}
		for _, policy := range policies {
			for _, closest := range []string{"false", "true"} {
				cfg := Config{Policy: policy, Nodes: nodes, Options: map[string]string{OptionClosest: closest}}
				kinds[hold(t, cfg, host, distance, reqs)]++
			}
		}
	}
	t.Logf("answers: %v", kinds)
	for _, kind := range []string{"refused", "nothing to align", "preferred", "all nodes", "compromise"} {
		if kinds[kind] < 1000 {
			t.Errorf("%d answers of %q are too few to have tested it", kinds[kind], kind)
		}
	}
}

// TestMeetIsEveryIntersection: counting pairs finds the very sets that going through all pairs does, also where no request could give such sets.
func TestMeetIsEveryIntersection(t *testing.T) {
	const seed = 7
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 2))
	for round := range 3000 {
		size := 1 << rnd.IntN(7)
		x, y, want := make([]uint64, size), make([]uint64, size), make([]uint64, size)
		for i := range size {
			x[i], y[i] = uint64(min(rnd.IntN(1+round%5), 1)), uint64(min(rnd.IntN(1+round%7), 1))
		}
		for i := range size {
			for j := range size {
				if x[i] == 1 && y[j] == 1 {
					want[i&j] = 1
				}
			}
		}
		before := [][]uint64{slices.Clone(x), slices.Clone(y)}
		if meet(x, y); !slices.Equal(x, want) {
			t.Fatalf("%v\ngot  %v\nwant %v", before, x, want)
		}
	}
	// The largest numbers that there can be.
	full := func() []uint64 { return slices.Repeat([]uint64{1}, 1<<MaxNodes) }
	x := full()
	if meet(x, full()); slices.Contains(x, 0) {
		t.Error("all sets of the most nodes meet in less than all")
	}
}
