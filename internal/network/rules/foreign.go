package rules

import (
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/network/podnet"
)

// An accept in a table of ours cannot save a packet from a chain elsewhere that drops by policy (as iptables-nft does on hosts
// with another container engine), or by a last rule. So each such forward chain gets rules, marked by a comment, where its
// own have all had their say: before that last rule, or at the end: one for what comes from pods, and one for what goes to them (of each family in a table inet). An input chain that drops
// gets rules that let pods ask the cluster's DNS.

// foreign are the chains of others, within one operation.
type foreign struct {
	reader
	// links looks interfaces of the host up.
	links func(name string) (netlink.Link, error)
	// never: they get no rules.
	never bool
}

// open puts the marked rules into the chains that need them, and takes them from where they are not to be. Fresh says that what is there may be of other ranges, or an earlier process's.
// It returns which chains matter.
func (f foreign) open(ranges []netip.Prefix, fresh bool) (known map[chainName]bool, err error) {
	chains, err := f.others()
	if err != nil {
		return nil, err
	}
	known = map[chainName]bool{}
	for _, c := range chains {
		accepts := f.acceptsIn(c, ranges)
		if len(accepts) == 0 {
			if c.Type == nftables.ChainTypeNAT && c.Hooknum != nil && *c.Hooknum == *nftables.ChainHookPostrouting {
				known[nameOf(c)] = true // forward looks at its rules
			}
			continue
		}
		known[nameOf(c)] = true
		rules, err := f.rulesOf(c)
		if err != nil {
			return nil, err
		}
		drops := c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop
		count := len(accepts)
		if fresh {
			count = -1
		}
		p := placeIn(rules, drops, f.never, f.mark(), count)
		for _, r := range p.remove {
			if err := f.conn.DelRule(r); err != nil {
				return nil, f.explain("deleting a rule", err)
			}
		}
		if p.add {
			f.addMarked(c, p.before, accepts)
		}
	}
	return known, f.explain("opening the forward chains", f.conn.Flush())
}

func nameOf(c *nftables.Chain) chainName {
	return chainName{byte(c.Table.Family), c.Table.Name, c.Name}
}

// addMarked adds the rules before the rule with this handle, or with 0 at the end.
func (f foreign) addMarked(c *nftables.Chain, before uint64, accepts [][]expr.Any) {
	for _, exprs := range accepts {
		r := &nftables.Rule{
			Table:    c.Table,
			Chain:    c,
			Position: before,
			UserData: userdata.AppendString(nil, userdata.TypeComment, f.mark()),
			Exprs:    append(slices.Clone(exprs), &expr.Counter{}, &expr.Verdict{Kind: expr.VerdictAccept}),
		}
		if before != 0 {
			f.conn.InsertRule(r)
		} else {
			f.conn.AddRule(r)
		}
	}
}

// marked returns the rules of a chain that carry our mark.
func (f foreign) marked(c *nftables.Chain) ([]*nftables.Rule, error) {
	rules, err := f.rulesOf(c)
	if err != nil {
		return nil, err
	}
	var out []*nftables.Rule
	for _, r := range rules {
		if comment, ok := userdata.GetString(r.UserData, userdata.TypeComment); ok && comment == f.mark() {
			out = append(out, r)
		}
	}
	return out, nil
}

// close takes the marked rules away, wherever they are.
func (f foreign) close() error {
	chains, err := f.others()
	if err != nil {
		return err
	}
	for _, c := range chains {
		if c.Hooknum == nil || *c.Hooknum != *nftables.ChainHookForward && *c.Hooknum != *nftables.ChainHookInput {
			continue
		}
		marked, err := f.marked(c)
		if err != nil {
			return err
		}
		for _, r := range marked {
			if err := f.conn.DelRule(r); err != nil {
				return f.explain("deleting a rule", err)
			}
		}
	}
	return f.explain("closing the forward chains", f.conn.Flush())
}

// forward says whether somebody else on this host translates source addresses, and so needs forwarding; with nodes also
// whether another node does.
func (f foreign) forward(nodes bool) (bool, error) {
	chains, err := f.others()
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

// isNode says whether a table is another node's: it has the name of a bridge that is one.
func (f foreign) isNode(t *nftables.Table) bool {
	link, err := f.links(podnet.NetworkOf(t.Name))
	return err == nil && link.Attrs().Group == podnet.BridgeGroup
}

// guardOfAnotherNode says for which families another node of this host has a guard: it has switched forwarding on. With its
// removal the switch and the guard pass to those that are left.
func (f foreign) guardOfAnotherNode() (g Families, err error) {
	chains, err := f.others()
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
