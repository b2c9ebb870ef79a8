package rules

import (
	"net/netip"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
)

// markPrefix begins the comment of the marked rules of every node.
const markPrefix = "monopod "

// mark is the comment of this node's.
func (s site) mark() string { return markPrefix + s.network.Name }

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

// acceptsIn are the rules that a chain gets if it refuses what it does not know; none: it is no chain that matters.
func (s site) acceptsIn(c *nftables.Chain, ranges []netip.Prefix) [][]expr.Any {
	switch {
	case c.Hooknum == nil || c.Type != nftables.ChainTypeFilter:
		return nil
	case *c.Hooknum == *nftables.ChainHookForward:
		return s.acceptPods(c.Table.Family, ranges)
	case *c.Hooknum == *nftables.ChainHookInput:
		return s.acceptDNS(c.Table.Family)
	}
	return nil
}

// acceptPods are what comes from pods of this node and what goes to them, for a chain of this family.
func (s site) acceptPods(of nftables.TableFamily, ranges []netip.Prefix) (all [][]expr.Any) {
	for _, fam := range families {
		if of != nftables.TableFamilyINet && byte(of) != fam.proto {
			continue
		}
		for _, r := range ranges {
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
