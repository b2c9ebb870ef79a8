package rules

import (
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// shape is the table as it is to be: chains, sets and rules in the order in which the kernel is told of them.
type shape struct {
	site
	parts []part
	// rules counts them by their chains.
	rules map[string]int
}

// part is a chain, a rule, or a set with its elements.
type part struct {
	chain    *nftables.Chain
	rule     *nftables.Rule
	set      *nftables.Set
	elements []nftables.SetElement
}

// into puts all of it into a transaction.
func (s *shape) into(conn *nftables.Conn) error {
	for _, p := range s.parts {
		switch {
		case p.chain != nil:
			conn.AddChain(p.chain)
		case p.rule != nil:
			conn.AddRule(p.rule)
		default:
			if err := conn.AddSet(p.set, nil); err != nil {
				return fmt.Errorf("network: nftables set: %w", err)
			}
			for some := range slices.Chunk(p.elements, elementsInMessage) {
				if err := conn.SetAddElements(p.set, some); err != nil {
					return fmt.Errorf("network: nftables set: %w", err)
				}
			}
		}
	}
	return nil
}

// plain adds a chain that packets come to from other chains, base one that they come to from the kernel.
func (s *shape) plain(name string) *nftables.Chain {
	return s.chain(&nftables.Chain{Name: name, Table: s.table})
}

func (s *shape) base(name string, typ nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
	accept := nftables.ChainPolicyAccept
	return s.chain(&nftables.Chain{Name: name, Table: s.table, Type: typ, Hooknum: hook, Priority: priority, Policy: &accept})
}

func (s *shape) chain(c *nftables.Chain) *nftables.Chain {
	s.parts = append(s.parts, part{chain: c})
	return c
}

// set adds a set with its elements.
func (s *shape) set(set *nftables.Set, with []nftables.SetElement) {
	s.parts = append(s.parts, part{set: set, elements: with})
}

// rule adds a rule made of parts.
func (s *shape) rule(chain *nftables.Chain, parts ...[]expr.Any) {
	var exprs []expr.Any
	for _, p := range parts {
		exprs = append(exprs, p...)
	}
	s.parts = append(s.parts, part{rule: &nftables.Rule{Table: chain.Table, Chain: chain, Exprs: exprs}})
	s.rules[chain.Name]++
}
