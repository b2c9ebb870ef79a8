package rules

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network/lease"
	"monopod.dev/monopod/internal/network/podnet"
)

// The own table, always written as a whole, in one transaction; only elements of the maps come and go by themselves:
//
//	table inet <bridge> {
//	    map at4    { type inet_proto . ipv4_addr . inet_service : ipv4_addr . inet_service }  # host ports at one address
//	    map any4   { type inet_proto . inet_service : ipv4_addr . inet_service }              # ... at all addresses
//	    set to4    { type inet_proto . ipv4_addr . inet_service }                             # where host ports lead to
//	    map at6 any6, set to6                                                                 # the same for IPv6
//	    chain hostports { meta l4proto . th dport <the node's own> return; ip daddr <dns> return; dnat ip to meta l4proto . ip daddr . th dport map @at4; ... any4, at6, any6 }
//	    chain prerouting  { type nat hook prerouting priority dstnat;  fib daddr type local jump hostports }
//	    chain output      { type nat hook output     priority dstnat;  fib daddr type local jump hostports }
//	    chain postrouting {
//	        type nat hook postrouting priority srcnat;
//	        ip saddr <range> oifgroup != <ports> masquerade fully-random                     # one for each range
//	        ip saddr <range> oifgroup <ports> ct status dnat meta l4proto . ip daddr . th dport @to4 snat to <gateway>
//	        ip saddr 127.0.0.0/8 oifgroup <ports> snat to <gateway>
//	    }
//	    chain sources { ... }, set from4, from6                                              # sourceguard.go
//	    chain guard { type filter hook prerouting priority raw; iifname "<bridge>" drop; iifgroup <leaving> drop
//	                  iifgroup <ports> ip daddr 127.0.0.0/8 drop; ip saddr ...; icmpv6 type <a router's> drop   # and dns.go }
//	    chain forward { ... }                                                                # forwardguard.go
//	    chain connections { ... }, set open4, full4, open6, full6                            # connections.go
//	    chain invalid-in, invalid-out { ... }                                                # invalid.go
//	}
//
// A lookup in a map costs the same however many host ports there are, and nat chains see the first packet of a
// connection only.
//
// <ports> are the host's ends of the sandboxes' interfaces, by their group; <gateway> is the host's address in the range. A pod that reaches itself through a
// port of the host gets the host's address: it would take its own for itself. So does the host that asks its own loopback address. (Any pod that comes by a port of the host
// does.) That needs route_localnet on the host's ends; the guard keeps pods from reaching the host's loopback by it. Nothing comes from the bridge itself, which has no port: but one that somebody
// has put there would be in no guard.
const (
	hostportsChain   = "hostports"
	preroutingChain  = "prerouting"
	outputChain      = "output"
	postroutingChain = "postrouting"
	guardChain       = "guard"
)

// wanted is what a shape follows from, beside the site.
type wanted struct {
	// leases are by sandbox, ranges those that sandboxes have addresses of.
	leases map[ids.SandboxID]lease.Lease
	ranges []netip.Prefix
	// forwards are the families that the forward guard is for.
	forwards Families
	limit    bound
	// shared: others forward packets, with this node's knowledge.
	shared bool
}

// shapeOf is the shape of the table. It is pure.
func shapeOf(at site, w wanted) *shape {
	s := &shape{site: at, rules: map[string]int{}}
	hostports := s.plain(hostportsChain)
	s.leaveOwnPorts(hostports)
	for _, fam := range families {
		var all elements
		for _, rec := range w.leases {
			if !rec.Leaving {
				all.add(portElements(fam, rec))
			}
		}
		sets := s.sets(fam)
		sets.each(all, s.set)
		s.leaveDNS(hostports, fam)
		s.rule(hostports, fam.isFamily(), fam.portKey(fam.dst), fam.dnat(sets.at))
		s.rule(hostports, fam.isFamily(), fam.portKey(0), fam.dnat(sets.any))
	}
	if w.limit.connections > 0 {
		s.boundConnections(s.base(connectionsChain, nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityMangle), w.limit)
	}
	s.dropInvalid(s.base(invalidInChain, nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityMangle),
		s.base(invalidOutChain, nftables.ChainTypeFilter, nftables.ChainHookPostrouting, nftables.ChainPriorityMangle))
	jump := append(isLocal(), &expr.Verdict{Kind: expr.VerdictJump, Chain: hostportsChain})
	s.rule(s.base(preroutingChain, nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest), jump)
	s.rule(s.base(outputChain, nftables.ChainTypeNAT, nftables.ChainHookOutput, nftables.ChainPriorityNATDest), jump)
	post := s.base(postroutingChain, nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)
	guard := s.base(guardChain, nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRaw)
	s.rule(guard, s.fromBridge(), verdict(expr.VerdictDrop))
	s.rule(guard, group(expr.MetaKeyIIFGROUP, expr.CmpOpEq, podnet.LeavingGroup), verdict(expr.VerdictDrop))
	for _, fam := range families {
		s.translateSources(post, fam, w.ranges)
		for _, offset := range []uint32{fam.src, fam.dst} {
			s.rule(guard, fam.isFamily(), s.fromPods(expr.CmpOpEq), match(offset, fam.loopback), verdict(expr.VerdictDrop))
		}
		if !w.shared {
			s.guardDNS(guard, fam)
		}
	}
	s.refuseRouters(guard)
	if s.guards {
		s.guardSources(s.base(sourcesChain, nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRef(*nftables.ChainPriorityRaw-1)), w.leases)
	}
	s.forwardRules(s.base(forwardChain, nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityFilter), w.forwards)
	return s
}

// translateSources writes the rules of a family for what leaves by the host's address.
func (s *shape) translateSources(post *nftables.Chain, fam family, ranges []netip.Prefix) {
	var gateway netip.Addr
	for _, r := range ranges {
		if r.Addr().BitLen() != int(fam.size)*8 {
			continue
		}
		if !gateway.IsValid() {
			gateway = lease.GatewayOf(r)
		}
		s.rule(post, fam.isFamily(), match(fam.src, r), s.toPods(expr.CmpOpNeq), []expr.Any{&expr.Masq{FullyRandom: true}})
		s.rule(post, fam.isFamily(), match(fam.src, r), s.toPods(expr.CmpOpEq), wasTranslated(), fam.portKey(fam.dst),
			[]expr.Any{&expr.Lookup{SourceRegister: keyRegister, SetName: fam.to}}, fam.snat(lease.GatewayOf(r)))
	}
	if gateway.IsValid() {
		s.rule(post, fam.isFamily(), match(fam.src, fam.loopback), s.toPods(expr.CmpOpEq), fam.snat(gateway))
	}
}

// snat translates the source to an address of the host. The host's ends have none, of which a masquerade could be one.
func (fam family) snat(to netip.Addr) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: to.AsSlice()},
		&expr.NAT{Type: expr.NATTypeSourceNAT, Family: uint32(fam.proto), RegAddrMin: 1},
	}
}

// refuseRouters keeps pods from posing as a router of the host, also without the source guard (RFC 4861: router advertisement, redirect).
func (s *shape) refuseRouters(guard *nftables.Chain) {
	for _, typ := range []byte{134, 137} {
		s.rule(guard, s.fromPods(expr.CmpOpEq), []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_ICMPV6}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{typ}},
		}, verdict(expr.VerdictDrop))
	}
}
