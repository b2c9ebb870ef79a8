package network

import (
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// A rule of others that the library cannot read is no reason to do without the network, and a refusal behind it is seen still.
func TestForeignRulesThatCannotBeRead(t *testing.T) {
	h := newHost(t)
	conn, err := nftables.New()
	h.must(err)
	table := conn.AddTable(&nftables.Table{Name: "foreign", Family: nftables.TableFamilyINet})
	t.Cleanup(func() {
		conn.DelTable(table)
		h.must(conn.Flush())
	})
	chain := conn.AddChain(&nftables.Chain{Name: "forward", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Ct{Key: expr.CtKeyPROTODST, Register: 1}, // ct original proto-dst
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{0, 22}},
		&expr.Verdict{Kind: expr.VerdictAccept},
	}})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}}})
	h.must(conn.Flush())
	if _, err := conn.GetRules(table, chain); err == nil {
		t.Log("the library can read it by now")
	}
	b := h.bridge(Config{Bridge: "mpt0", PodCIDRs: testRanges})
	h.must(b.Status(t.Context()))
	h.must(b.withFirewall(func(fw *firewall) error {
		rules, err := fw.rules(chain)
		if err != nil {
			return err
		}
		// The two rules of the bridge are between them.
		if len(rules) != 4 || !refusesAll(rules[3].Exprs, false) || refusesAll(rules[0].Exprs, false) {
			t.Errorf("%d rules: %+v", len(rules), rules)
		}
		return nil
	}))
}
