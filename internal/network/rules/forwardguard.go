package rules

import (
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

// forwardRules writes the rules for these families.
func (s *shape) forwardRules(c *nftables.Chain, g Families) {
	if !g.Any() {
		return
	}
	kind := func(key expr.MetaKey) []expr.Any {
		return []expr.Any{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: interfaceName("bridge")}}
	}
	s.rule(c, kind(metaIIFKind), kind(metaOIFKind), verdict(expr.VerdictAccept))
	s.rule(c, wasTranslated(), verdict(expr.VerdictAccept))
	for _, fam := range families {
		if fam.proto == unix.NFPROTO_IPV4 && !g.IP4 || fam.proto == unix.NFPROTO_IPV6 && !g.IP6 {
			continue
		}
		s.rule(c, fam.isFamily(),
			groupOfNode(expr.MetaKeyIIFGROUP, expr.CmpOpNeq), groupOfNode(expr.MetaKeyOIFGROUP, expr.CmpOpNeq), refused())
	}
}
