package compile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Compiler makes rules of policies and pods. It remembers the numbers that it has given, and what it has found out about kinds of pods while the policies
// stay the same. It is not safe for concurrent use.
type Compiler struct {
	classes, profiles *numbers

	policies   map[string][]*policy // by namespace
	namespaces map[string]labels.Set
	said       [2]parsed
	segments   [2][]segment
	problems   []Problem

	kinds map[string]map[string]*judged // by namespace, and by what policies see of them
	known int                           // how many kinds that are
	atoms [2]map[string][]*atom         // by namespace
	pods  [2]map[string]*podClass       // by name, of this node's pods
	peers [2]map[string]*peerClass      // by name
	pairs [2]*pairs                     // as they were last
	state *state                        // of the pods that were told
}

// judged is what policies say of a kind of pods.
type judged struct {
	pods  [2]*podClass // nil: nothing isolates them
	peers [2]peerClass // of a pod in no block
	// within are the classes of such pods as peers, by the blocks that their addresses are of: most are of none, and nobody asks again.
	within [2]map[string]*peerClass
}

// peerOf is the class of such a pod, at an address that is of these blocks; nil: nobody names it.
func (c *Compiler) peerOf(j *judged, d Direction, blocks string) *peerClass {
	known, ok := j.within[d][blocks]
	if !ok {
		if known = c.peer(d, j.peers[d], blocks); j.within[d] == nil {
			j.within[d] = map[string]*peerClass{}
		}
		j.within[d][blocks] = known
	}
	return known
}

// podClass are pods of this node that the same policies isolate, and in which the names of ports that these use mean the same.
type podClass struct {
	name     string
	policies []*policy
	meaning  map[name][]uint16
}

// peerClass are peers that policies name in the same way, and in which names of ports mean the same.
type peerClass struct {
	name    string
	atoms   []string
	meaning map[name][]uint16
}

// New returns a compiler that knows no policies.
func New() *Compiler {
	c := &Compiler{classes: newNumbers(uint32(firstClass)), profiles: newNumbers(1)}
	c.Learn(nil, nil)
	return c
}

// Learn tells the policies and the namespaces that hold from now on.
func (c *Compiler) Learn(policies []*networkingv1.NetworkPolicy, namespaces []Namespace) {
	c.policies, c.namespaces, c.problems = map[string][]*policy{}, map[string]labels.Set{}, nil
	c.kinds, c.known = map[string]map[string]*judged{}, 0
	for d := range Directions {
		c.said[d] = parsed{map[string]*atom{}, map[string]block{}, map[name]bool{}}
		c.atoms[d], c.pods[d], c.peers[d], c.pairs[d] = map[string][]*atom{}, map[string]*podClass{}, map[string]*peerClass{}, nil
	}
	for _, n := range namespaces {
		c.namespaces[n.Name] = n.Labels
	}
	for _, p := range policies {
		read, problems := understood(p, &c.said)
		c.policies[p.Namespace] = append(c.policies[p.Namespace], read)
		c.problems = append(c.problems, problems...)
	}
	for _, list := range c.policies {
		slices.SortFunc(list, func(a, b *policy) int { return cmp.Compare(a.key, b.key) })
	}
	slices.SortStableFunc(c.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Policy.Namespace, b.Policy.Namespace), cmp.Compare(a.Policy.Name, b.Policy.Name))
	})
	for d := range Directions {
		c.segments[d] = segments(slices.Collect(maps.Values(c.said[d].blocks)))
	}
	c.begin()
}

// judge finds out what policies say of a kind of pods.
func (c *Compiler) judge(k *Kind) *judged {
	if j := c.kinds[k.Namespace][k.print]; j != nil {
		return j
	}
	j := &judged{}
	for d := range Directions {
		j.pods[d] = c.isolates(Direction(d), k)
		j.peers[d] = c.named(Direction(d), k)
	}
	c.remember(k, j)
	return j
}

func (c *Compiler) remember(k *Kind, j *judged) {
	of := c.kinds[k.Namespace]
	if of == nil {
		of = map[string]*judged{}
		c.kinds[k.Namespace] = of
	}
	if of[k.print] == nil {
		c.known++
	}
	of[k.print] = j
}

// isolates are the policies that isolate pods of a kind; nil: none.
func (c *Compiler) isolates(d Direction, k *Kind) *podClass {
	of := podClass{meaning: map[name][]uint16{}}
	var keys []string
	for _, p := range c.policies[k.Namespace] {
		if !p.about[d] || !p.selector.Matches(k.labels()) {
			continue
		}
		of.policies = append(of.policies, p)
		keys = append(keys, p.key)
		if d != Ingress {
			continue // the ports are the peer's
		}
		for _, r := range p.rules[d] {
			for _, n := range r.ports.named {
				of.meaning[n] = k.numbers(n.protocol, n.name)
			}
		}
	}
	if len(keys) == 0 {
		return nil
	}
	of.name = fmt.Sprintf("%d pods\n%s\n%s", d, joined(keys), meant(of.meaning))
	if known := c.pods[d][of.name]; known != nil {
		return known
	}
	c.pods[d][of.name] = &of
	return &of
}

// named is in which ways policies name pods of a kind as peers.
func (c *Compiler) named(d Direction, k *Kind) (of peerClass) {
	for _, a := range c.atomsOf(d, k.Namespace) {
		if a.pods.Matches(k.labels()) {
			of.atoms = append(of.atoms, a.key)
		}
	}
	for n := range c.said[d].names {
		if numbers := k.numbers(n.protocol, n.name); len(numbers) > 0 {
			if of.meaning == nil {
				of.meaning = map[name][]uint16{}
			}
			of.meaning[n] = numbers
		}
	}
	return of
}

// atomsOf are the peers that pods of a namespace can be.
func (c *Compiler) atomsOf(d Direction, namespace string) []*atom {
	if known, ok := c.atoms[d][namespace]; ok {
		return known
	}
	var all []*atom
	for _, a := range c.said[d].atoms {
		if a.of(namespace, c.namespaces[namespace]) {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b *atom) int { return cmp.Compare(a.key, b.key) })
	c.atoms[d][namespace] = all
	return all
}

// peer is the class of what is named so, and is of blocks; nil: nobody names it.
func (c *Compiler) peer(d Direction, of peerClass, blocks string) *peerClass {
	if len(of.atoms) == 0 && len(of.meaning) == 0 && blocks == "" {
		return nil
	}
	atoms := slices.Clone(of.atoms)
	if blocks != "" {
		atoms = append(atoms, strings.Split(blocks, "\n")...)
	}
	name := fmt.Sprintf("%d peers\n%s\n%s", d, joined(atoms), meant(of.meaning))
	if known := c.peers[d][name]; known != nil {
		return known
	}
	made := &peerClass{name, atoms, of.meaning}
	c.peers[d][name] = made
	return made
}

// meant is the meaning of names, as a name.
func meant(meaning map[name][]uint16) string {
	var all []string
	for n, numbers := range meaning {
		all = append(all, fmt.Sprintf(":%s=%d", n, numbers))
	}
	return joined(all)
}
