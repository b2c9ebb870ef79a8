package compile

import (
	"cmp"
	"net/netip"
	"slices"
)

// state is what pods that were told have made of policies. A pod that comes, changes or goes is taken out and put in again: nothing else of it is touched, but where a class
// of addresses is the first or the last of its name the pairs of classes are found anew.
type state struct {
	round uint64
	pods  map[string]*placed // by key
	spots map[netip.Addr]*spot
	// within are the pods by namespace.
	within map[string]map[*placed]bool
	used   [2]usedClasses
	// dirty: a class has come into use, or is not in use any more.
	dirty [2]bool
	// again are pods that were told, and that policies may say something else of now.
	again []*placed
	rules Rules
}

// placed is a pod that was told.
type placed struct {
	Pod
	judged *judged
	round  uint64 // when it was told last
}

// spot is an address, and the pods that claim it.
type spot struct {
	claims []*placed
	pods   [2]*podClass
	peers  [2]*peerClass
	held   bool // a pod of this node has it
}

// usedClasses are classes that addresses are of, and of how many.
type usedClasses struct {
	pods  map[Class]*podClass
	peers map[Class]*peerClass
}

// begin forgets all pods. What classes are of comes back with them.
func (c *Compiler) begin() {
	s := &state{pods: map[string]*placed{}, spots: map[netip.Addr]*spot{}, within: map[string]map[*placed]bool{}, rules: Rules{Ports: map[PortRange]bool{}, Problems: c.problems}}
	c.state = s
	c.classes.restart()
	c.profiles.restart()
	for d := range Directions {
		s.used[d] = usedClasses{map[Class]*podClass{}, map[Class]*peerClass{}}
		s.dirty[d] = true
		v := &s.rules.Verdicts[d]
		v.Pods, v.Peers = map[netip.Addr]Class{}, map[netip.Addr]Class{}
		for _, seg := range c.segments[d] {
			class := c.usePeer(Direction(d), c.peer(Direction(d), peerClass{}, seg.atoms))
			v.Blocks = append(v.Blocks, Block{seg.from, seg.to, class})
		}
	}
}

// Compile says what holds for these pods, and no others: it is Update with what differs from the pods that were told before. Where two pods have an address, one of this
// node has it, and of others the one whose key is the greater. What it returns holds until the next call.
func (c *Compiler) Compile(pods []Pod) Rules {
	s := c.state
	s.round++
	var come []Pod
	for i := range pods {
		p := &pods[i]
		if known := s.pods[p.Key]; known != nil {
			known.round = s.round
			if known.same(p) {
				continue
			}
		}
		come = append(come, *p)
	}
	var gone []string
	for key, p := range s.pods {
		if p.round != s.round {
			gone = append(gone, key)
		}
	}
	return c.Update(come, gone)
}

// Update says what holds when some pods have come or changed, and those of some keys have gone. It costs what these pods have, whatever others there are, as long as there are
// others of their classes. What it returns holds until the next call.
func (c *Compiler) Update(come []Pod, gone []string) Rules {
	s := c.state
	s.rules.Before, s.rules.Version = s.rules.Version, &Version{}
	s.rules.Touched = Touched{Addresses: map[netip.Addr]bool{}}
	for _, p := range s.again {
		c.takeOut(p.Key)
		c.putIn(&p.Pod)
	}
	s.again = nil
	for _, key := range gone {
		c.takeOut(key)
	}
	for i := range come {
		c.takeOut(come[i].Key)
		c.putIn(&come[i])
	}
	for a := range s.rules.Touched.Addresses {
		c.settle(a)
	}
	s.rules.Touched.Pairs = s.dirty
	c.pair()
	c.classes.sweep()
	c.profiles.sweep()
	c.forgetKinds()
	return s.rules
}

// Relabel tells of namespaces that have come or have other labels, and of the names of those that have gone, while policies stay the same. The next Update judges their pods anew, and
// no others.
func (c *Compiler) Relabel(come []Namespace, gone []string) {
	changed := map[string]bool{}
	for _, name := range gone {
		changed[name] = true
		delete(c.namespaces, name)
	}
	for _, n := range come {
		changed[n.Name] = true
		c.namespaces[n.Name] = n.Labels
	}
	for name := range changed {
		for d := range Directions {
			delete(c.atoms[d], name)
		}
		c.known -= len(c.kinds[name])
		delete(c.kinds, name)
		for p := range c.state.within[name] {
			c.state.again = append(c.state.again, p)
		}
	}
}

// spare is how many kinds of pods that are not there are remembered at least.
const spare = 1000

// forgetKinds forgets the kinds of pods that are not there, when they are more than all others: each job has one of its own.
func (c *Compiler) forgetKinds() {
	if c.known <= spare+2*len(c.state.pods) {
		return
	}
	c.kinds, c.known = map[string]map[string]*judged{}, 0
	for _, p := range c.state.pods {
		c.remember(p.Kind, p.judged)
	}
}

// same says that nothing follows from a pod that has not followed from this one.
func (p *placed) same(o *Pod) bool {
	return p.Local == o.Local && (p.Kind == o.Kind || p.Kind.Same(o.Kind)) && slices.Equal(p.Addresses, o.Addresses)
}

func (c *Compiler) putIn(pod *Pod) {
	s := c.state
	p := &placed{Pod: *pod, judged: c.judge(pod.Kind), round: s.round}
	s.pods[p.Key] = p
	if s.within[p.Kind.Namespace] == nil {
		s.within[p.Kind.Namespace] = map[*placed]bool{}
	}
	s.within[p.Kind.Namespace][p] = true
	for _, a := range p.Addresses {
		s.rules.Touched.Addresses[a] = true
		at := s.spots[a]
		if at == nil {
			at = &spot{}
			s.spots[a] = at
		}
		at.claims = append(at.claims, p)
	}
}

func (c *Compiler) takeOut(key string) {
	s := c.state
	p := s.pods[key]
	if p == nil {
		return
	}
	delete(s.pods, key)
	if delete(s.within[p.Kind.Namespace], p); len(s.within[p.Kind.Namespace]) == 0 {
		delete(s.within, p.Kind.Namespace)
	}
	for _, a := range p.Addresses {
		s.rules.Touched.Addresses[a] = true
		at := s.spots[a]
		at.claims = slices.DeleteFunc(at.claims, func(o *placed) bool { return o == p })
	}
}

// settle makes an address what the pods that claim it make of it.
func (c *Compiler) settle(a netip.Addr) {
	s := c.state
	at := s.spots[a]
	var owner *placed
	if len(at.claims) > 0 {
		owner = slices.MaxFunc(at.claims, func(a, b *placed) int {
			if a.Local != b.Local {
				return map[bool]int{true: 1, false: -1}[a.Local]
			}
			return cmp.Compare(a.Key, b.Key)
		})
	}
	before := *at
	at.held = owner != nil && owner.Local
	for d := range Directions {
		at.pods[d], at.peers[d] = nil, nil
		if owner != nil {
			at.peers[d] = c.peerOf(owner.judged, Direction(d), atomsAt(c.segments[d], a))
		}
		if at.held {
			at.pods[d] = owner.judged.pods[d]
		}
		c.change(Direction(d), a, &before, at)
	}
	if owner == nil {
		delete(s.spots, a)
	}
}

// change writes down what an address is in one direction. Classes are taken into use before others are left, so that one that stays keeps its number.
func (c *Compiler) change(d Direction, a netip.Addr, before, now *spot) {
	v := &c.state.rules.Verdicts[d]
	switch {
	case now.pods[d] != nil:
		v.Pods[a] = c.usePod(d, now.pods[d])
	case now.held:
		v.Pods[a] = Free
	default:
		delete(v.Pods, a)
	}
	if now.peers[d] != nil {
		v.Peers[a] = c.usePeer(d, now.peers[d])
	} else {
		delete(v.Peers, a)
	}
	if p := before.pods[d]; p != nil {
		c.leave(d, p.name, func(class Class) { delete(c.state.used[d].pods, class) })
	}
	if p := before.peers[d]; p != nil {
		c.leave(d, p.name, func(class Class) { delete(c.state.used[d].peers, class) })
	}
}

func (c *Compiler) usePod(d Direction, p *podClass) Class {
	n, first := c.classes.take(p.name)
	if first {
		c.state.used[d].pods[Class(n)], c.state.dirty[d] = p, true
	}
	return Class(n)
}

func (c *Compiler) usePeer(d Direction, p *peerClass) Class {
	n, first := c.classes.take(p.name)
	if first {
		c.state.used[d].peers[Class(n)], c.state.dirty[d] = p, true
	}
	return Class(n)
}

// leave is told that one address less is of a class.
func (c *Compiler) leave(d Direction, name string, unused func(Class)) {
	if n, last := c.classes.drop(name); last {
		unused(Class(n))
		c.state.dirty[d] = true
	}
}
