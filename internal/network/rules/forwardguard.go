package rules

import (
	"os"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Forwarding is a switch of the whole host. Where it was off and this node has switched it on, for its pods, the host would
// become a router between its other networks, too. So as long as nobody else is known to need forwarding, the chain forward
// of the own table drops what neither comes from a pod of a node nor goes to one:
//
//	chain forward {
//	    type filter hook forward priority filter;
//	    meta iifkind "bridge" meta oifkind "bridge" accept
//	    ct status & dnat != 0 accept
//	    meta nfproto ipv4 iifgroup & 0xff000000 != <nodes> oifgroup & 0xff000000 != <nodes> counter drop
//	    meta nfproto ipv6 ...                                                             # one for each family that was off
//	}
//
// The first rule is for frames within another bridge, of virtual machines say, which the host shows to its firewall as if
// they were forwarded (br_netfilter). The second is for what somebody on this host has sent on: a service whose endpoint is on another machine.
//
// Others need forwarding when they translate source addresses (as container engines and VPNs do), or when CNI connects pods
// of this node: then there is no such rule.
const forwardChain = "forward"

// What linux/netfilter/nf_tables.h calls the kind of a packet's interfaces.
const (
	metaIIFKind expr.MetaKey = 26
	metaOIFKind expr.MetaKey = 27
)

// wantForwardGuard decides it by what was written down when forwarding was switched on.
func (f *firewall) wantForwardGuard() (Families, error) {
	g, err := f.rules.cfg.SwitchedOn()
	if err != nil || !g.Any() || f.rules.cfg.NoForwardGuard || f.rules.shared.Load() {
		return Families{}, err
	}
	needed, err := f.othersForward(false)
	if err != nil || needed {
		return Families{}, err
	}
	return g, nil
}

func (f *firewall) forwardRules(c *nftables.Chain, g Families) {
	if !g.Any() {
		return
	}
	kind := func(key expr.MetaKey) []expr.Any {
		return []expr.Any{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: interfaceName("bridge")}}
	}
	f.rule(c, kind(metaIIFKind), kind(metaOIFKind), verdict(expr.VerdictAccept))
	f.rule(c, wasTranslated(), verdict(expr.VerdictAccept))
	for _, fam := range families {
		if fam.proto == unix.NFPROTO_IPV4 && !g.IP4 || fam.proto == unix.NFPROTO_IPV6 && !g.IP6 {
			continue
		}
		f.rule(c, fam.isFamily(),
			groupOfNode(expr.MetaKeyIIFGROUP, expr.CmpOpNeq), groupOfNode(expr.MetaKeyOIFGROUP, expr.CmpOpNeq), refused())
	}
}

// othersForward says whether somebody else on this host translates source addresses, and so needs forwarding; with nodes also
// whether another node does.
func (f *firewall) othersForward(nodes bool) (bool, error) {
	chains, err := f.chains()
	if err != nil {
		return false, err
	}
	for _, c := range chains {
		if c.Type != nftables.ChainTypeNAT || c.Hooknum == nil || *c.Hooknum != *nftables.ChainHookPostrouting {
			continue
		}
		if !nodes && f.isNode(c.Table) {
			continue
		}
		// A chain without a rule is what a look at it by iptables leaves.
		rules, err := f.rulesOf(c)
		if err != nil || len(rules) > 0 {
			return err == nil, err
		}
	}
	// iptables-legacy, whose rules nftables does not show.
	legacy, err := os.ReadFile("/proc/net/ip_tables_names")
	return err == nil && strings.Contains(string(legacy), "nat"), nil
}

// ServicesTable is the name of the tables of a node's services, which others make: they translate addresses, and nobody needs forwarding for that but the node.
func ServicesTable(bridge string) string { return bridge + servicesSuffix }

const servicesSuffix = "-services"

// isNode says whether a table is another node's: it has the name of a bridge that is one.
func (f *firewall) isNode(t *nftables.Table) bool {
	link, err := f.rules.cfg.Links(strings.TrimSuffix(t.Name, servicesSuffix))
	return err == nil && link.Attrs().Group == BridgeGroup
}

// guardOfAnotherNode says for which families another node of this host has a guard: it has switched forwarding on. With its
// removal the switch and the guard pass to those that are left.
func (f *firewall) guardOfAnotherNode() (g Families, err error) {
	chains, err := f.chains()
	if err != nil {
		return g, err
	}
	for _, c := range chains {
		if c.Name != forwardChain || c.Table.Family != f.table.Family || !f.isNode(c.Table) {
			continue
		}
		rules, err := f.rulesOf(c)
		if err != nil {
			return g, err
		}
		for _, r := range rules {
			if len(r.Exprs) < 2 {
				continue
			}
			meta, ok := r.Exprs[0].(*expr.Meta)
			cmp, isCmp := r.Exprs[1].(*expr.Cmp)
			if ok && isCmp && meta.Key == expr.MetaKeyNFPROTO && len(cmp.Data) == 1 {
				g.IP4 = g.IP4 || cmp.Data[0] == unix.NFPROTO_IPV4
				g.IP6 = g.IP6 || cmp.Data[0] == unix.NFPROTO_IPV6
			}
		}
	}
	return g, nil
}

// OthersForward says whether somebody else on this host translates source addresses, and so needs forwarding; with nodes also
// whether another node does.
func (r *Rules) OthersForward(nodes bool) (needed bool, err error) {
	err = r.do(func(f *firewall) (err error) {
		needed, err = f.othersForward(nodes)
		return err
	})
	return needed, err
}

// GuardOfAnotherNode says for which families another node of this host has switched forwarding on.
func (r *Rules) GuardOfAnotherNode() (g Families, err error) {
	err = r.do(func(f *firewall) (err error) {
		g, err = f.guardOfAnotherNode()
		return err
	})
	return g, err
}

// Share says that others forward packets on this host with this node's knowledge: from now on there is neither the forward guard nor that of the cluster's
// DNS. first tells that it was not said before.
func (r *Rules) Share() (first bool) { return !r.shared.Swap(true) }

// Renew writes the table anew where there is one, also of an earlier process.
func (r *Rules) Renew() error {
	return r.do(func(f *firewall) error {
		tables, err := f.conn.ListTablesOfFamily(f.table.Family)
		if err != nil {
			return f.explain("listing the tables", err)
		}
		if slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == f.table.Name }) {
			return f.install()
		}
		return nil
	})
}
