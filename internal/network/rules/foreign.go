package rules

import (
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/network/lease"
)

// An accept in a table of ours cannot save a packet from a chain elsewhere that drops by policy (as iptables-nft does on hosts
// with another container engine), or by a last rule. So each such forward chain gets rules, marked by a comment, where its
// own have all had their say: before that last rule, or at the end: one for what comes from pods, and one for what goes to them (of each family in a table inet). An input chain that drops
// gets rules that let pods ask the cluster's DNS.

// openForwardChains puts the marked rules into the foreign chains that need them, and takes them from where they are not to be.
func (f *firewall) openForwardChains() error {
	chains, err := f.chains()
	if err != nil {
		return err
	}
	known := map[chainName]bool{}
	ranges := f.rules.cfg.Leases.UsedRanges()
	for _, c := range chains {
		accepts := f.acceptsIn(c)
		if len(accepts) == 0 {
			if c.Type == nftables.ChainTypeNAT && c.Hooknum != nil && *c.Hooknum == *nftables.ChainHookPostrouting {
				known[nameOf(c)] = true // othersForward looks at its rules
			}
			continue
		}
		known[nameOf(c)] = true
		rules, err := f.rulesOf(c)
		if err != nil {
			return err
		}
		drops := c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop
		count := len(accepts)
		if !slices.Equal(ranges, f.rules.opened) {
			count = -1 // what is there is of other ranges, or an earlier process's
		}
		p := placeIn(rules, drops, f.rules.cfg.NoForeignRules, f.mark(), count)
		for _, r := range p.remove {
			if err := f.conn.DelRule(r); err != nil {
				return f.explain("deleting a rule", err)
			}
		}
		if p.add {
			f.addMarked(c, p.before, accepts)
		}
	}
	f.rules.know(known)
	if err := f.conn.Flush(); err != nil {
		return f.explain("opening the forward chains", err)
	}
	f.rules.opened = ranges
	return nil
}

func nameOf(c *nftables.Chain) chainName {
	return chainName{byte(c.Table.Family), c.Table.Name, c.Name}
}

// acceptsIn are the rules that a chain gets if it refuses what it does not know; none: it is no chain that matters.
func (f *firewall) acceptsIn(c *nftables.Chain) [][]expr.Any {
	switch {
	case c.Hooknum == nil || c.Type != nftables.ChainTypeFilter:
		return nil
	case *c.Hooknum == *nftables.ChainHookForward:
		return f.acceptPods(c.Table.Family)
	case *c.Hooknum == *nftables.ChainHookInput:
		return f.acceptDNS(c.Table.Family)
	}
	return nil
}

// acceptPods are what comes from pods of this node and what goes to them, for a chain of this family.
func (f *firewall) acceptPods(of nftables.TableFamily) (all [][]expr.Any) {
	for _, fam := range families {
		if of != nftables.TableFamilyINet && byte(of) != fam.proto {
			continue
		}
		for _, r := range f.rules.cfg.Leases.UsedRanges() {
			if r.Addr().BitLen() != int(fam.size)*8 {
				continue
			}
			for _, dir := range []struct {
				key    expr.MetaKey
				offset uint32
			}{{expr.MetaKeyIIFNAME, fam.src}, {expr.MetaKeyOIFNAME, fam.dst}} {
				rule := hostEnd(dir.key)
				if of == nftables.TableFamilyINet {
					rule = append(rule, fam.isFamily()...)
				}
				all = append(all, append(rule, match(dir.offset, r)...))
			}
		}
	}
	return all
}

// hostEnd says that an interface is the host's end of a sandbox's, by the beginning of its name. In tables of iptables-nft only what iptables has a word for may stand (-i mp+), or it
// refuses to work with them: it has none for groups.
func hostEnd(key expr.MetaKey) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: key, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte(lease.HostInterfacePrefix)},
	}
}

// addMarked adds the rules before the rule with this handle, or with 0 at the end.
func (f *firewall) addMarked(c *nftables.Chain, before uint64, accepts [][]expr.Any) {
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

// placing is what is to be done with the marked rules of a chain.
type placing struct {
	remove []*nftables.Rule
	add    bool
	before uint64 // the handle of the rule that refuses all that is left; 0: there is none
}

// placeIn decides it for the rules of a chain. The marked ones belong behind all others but the first that refuses everything,
// whatever comes after that, and there are to be count of them. Those of other nodes may be on either side. It is pure.
func placeIn(rules []*nftables.Rule, dropsByPolicy, never bool, mark string, count int) (p placing) {
	var have []*nftables.Rule
	strayed := false // a marked one is ahead of another's rule, or behind the end
	wanted := dropsByPolicy
	for _, r := range rules {
		comment, _ := userdata.GetString(r.UserData, userdata.TypeComment)
		if comment == mark {
			have = append(have, r)
			strayed = strayed || p.before != 0
			continue
		}
		if strings.HasPrefix(comment, markPrefix) || p.before != 0 {
			continue
		}
		if refusesAll(r.Exprs, dropsByPolicy) {
			p.before, wanted = r.Handle, !never
			continue
		}
		strayed = strayed || len(have) > 0
	}
	if wanted && !never && len(have) == count && !strayed {
		return placing{}
	}
	return placing{remove: have, add: wanted && !never, before: p.before}
}

// markPrefix begins the comment of the marked rules of every node.
const markPrefix = "monopod "

func (f *firewall) mark() string { return markPrefix + f.rules.cfg.Bridge }

// chains lists the chains of the host's IPv4 and IPv6 that are not ours.
func (f *firewall) chains() ([]*nftables.Chain, error) {
	var out []*nftables.Chain
	for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6, nftables.TableFamilyINet} {
		chains, err := f.conn.ListChainsOfTableFamily(family)
		if err != nil {
			return nil, f.explain("listing the chains", err)
		}
		for _, c := range chains {
			own := c.Table.Name == f.table.Name || c.Table.Name == ServicesTable(f.table.Name)
			if !own || c.Table.Family != f.table.Family {
				out = append(out, c)
			}
		}
	}
	return out, nil
}

// refusesAll says whether a rule drops or rejects every packet that comes to it, or leaves it to a policy that does. It is pure.
func refusesAll(exprs []expr.Any, dropsByPolicy bool) bool {
	for _, e := range exprs {
		switch e := e.(type) {
		case *expr.Counter, *expr.Log:
		case *expr.Reject:
			return true
		case *expr.Target: // of iptables-nft
			return e.Name == "REJECT"
		case *expr.Verdict:
			return e.Kind == expr.VerdictDrop || e.Kind == expr.VerdictReturn && dropsByPolicy
		default:
			return false
		}
	}
	return false
}

// marked returns the rules of a chain that carry our mark.
func (f *firewall) marked(c *nftables.Chain) ([]*nftables.Rule, error) {
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

// closeForwardChains takes the marked rules away, wherever they are.
func (f *firewall) closeForwardChains() error {
	chains, err := f.chains()
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

// interfaceName is a name as the kernel compares it: 16 bytes, filled with zeros.
func interfaceName(name string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, name)
	return b
}
