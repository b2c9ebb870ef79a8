package rules

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/network/lease"
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

// Registers of nftables that hold 4 bytes each. Keys are laid out from the first, what a map gives is in the second.
const (
	keyRegister  = unix.NFT_REG32_00
	dataRegister = unix.NFT_REG32_08
)

// family is what differs between IPv4 and IPv6 in the table.
type family struct {
	proto    byte   // NFPROTO
	size     uint32 // of an address
	src, dst uint32 // where the header has them
	at, any  string // maps
	to       string // set
	typ      nftables.SetDatatype
	loopback netip.Prefix
}

var families = []family{
	{unix.NFPROTO_IPV4, 4, 12, 16, "at4", "any4", "to4", nftables.TypeIPAddr, netip.MustParsePrefix("127.0.0.0/8")},
	{unix.NFPROTO_IPV6, 16, 8, 24, "at6", "any6", "to6", nftables.TypeIP6Addr, netip.MustParsePrefix("::1/128")},
}

// elementsInMessage keeps a message below the 64 KiB that an attribute of netlink can have.
const elementsInMessage = 500

// sets are the maps and the set of a family.
type sets struct{ at, any, to *nftables.Set }

func (f *firewall) sets(fam family) sets {
	target := nftables.MustConcatSetType(fam.typ, nftables.TypeInetService)
	one := nftables.MustConcatSetType(nftables.TypeInetProto, fam.typ, nftables.TypeInetService)
	all := nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeInetService)
	// With ids of our own, that are unique in a transaction, the library does not count them in a variable that all share.
	id := uint32(fam.proto) << 2
	return sets{
		at:  &nftables.Set{Table: f.table, ID: id, Name: fam.at, IsMap: true, KeyType: one, DataType: target},
		any: &nftables.Set{Table: f.table, ID: id + 1, Name: fam.any, IsMap: true, KeyType: all, DataType: target},
		to:  &nftables.Set{Table: f.table, ID: id + 2, Name: fam.to, KeyType: one},
	}
}

// each are the sets with the elements that they get from elements.
func (s sets) each(e elements, do func(*nftables.Set, []nftables.SetElement) error) error {
	for _, c := range []struct {
		set  *nftables.Set
		with []nftables.SetElement
	}{{s.at, e.at}, {s.any, e.any}, {s.to, e.to}} {
		if err := do(c.set, c.with); err != nil {
			return err
		}
	}
	return nil
}

// elements are what host ports put into the sets of a family.
type elements struct{ at, any, to []nftables.SetElement }

// portElements returns the elements of one sandbox's host ports. It is pure.
func portElements(fam family, rec lease.Lease) (e elements) {
	for _, a := range rec.Addresses {
		ip := a.Address.Addr()
		if ip.BitLen() != int(fam.size)*8 {
			continue
		}
		seen := map[[2]any]bool{}
		for _, p := range rec.HostPorts {
			proto := lease.Protocols[p.Protocol]
			value := append(ip.AsSlice(), portBytes(p.ContainerPort)...)
			switch {
			case p.Everywhere():
				e.any = append(e.any, nftables.SetElement{Key: append([]byte{proto, 0, 0, 0}, portBytes(p.HostPort)...), Val: value})
			case p.HostIP.BitLen() == ip.BitLen():
				key := append([]byte{proto, 0, 0, 0}, p.HostIP.AsSlice()...)
				e.at = append(e.at, nftables.SetElement{Key: append(key, portBytes(p.HostPort)...), Val: value})
			default:
				continue
			}
			// Two host ports may lead to one port.
			if k := [2]any{proto, p.ContainerPort}; !seen[k] {
				seen[k] = true
				e.to = append(e.to, nftables.SetElement{Key: append([]byte{proto, 0, 0, 0}, value...)})
			}
		}
	}
	return e
}

func (e *elements) add(o elements) {
	e.at, e.any, e.to = append(e.at, o.at...), append(e.any, o.any...), append(e.to, o.to...)
}

// portBytes is a port as it is in a set: in network order, filled up to 4 bytes.
func portBytes(port uint16) []byte { return []byte{byte(port >> 8), byte(port), 0, 0} }

// addOwnTable puts everything of the own table into the transaction.
func (f *firewall) addOwnTable(leases map[string]lease.Lease, forwards Families, limit bound) error {
	accept := nftables.ChainPolicyAccept
	base := func(name string, typ nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
		return f.conn.AddChain(&nftables.Chain{Name: name, Table: f.table, Type: typ, Hooknum: hook, Priority: priority, Policy: &accept})
	}
	hostports := f.conn.AddChain(&nftables.Chain{Name: hostportsChain, Table: f.table})
	f.leaveOwnPorts(hostports)
	for _, fam := range families {
		var all elements
		for _, rec := range leases {
			if !rec.Leaving {
				all.add(portElements(fam, rec))
			}
		}
		s := f.sets(fam)
		err := s.each(all, func(set *nftables.Set, with []nftables.SetElement) error {
			if err := f.conn.AddSet(set, nil); err != nil {
				return err
			}
			for part := range slices.Chunk(with, elementsInMessage) {
				if err := f.conn.SetAddElements(set, part); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("network: nftables set: %w", err)
		}
		f.leaveDNS(hostports, fam)
		f.rule(hostports, fam.isFamily(), fam.portKey(fam.dst), fam.dnat(s.at))
		f.rule(hostports, fam.isFamily(), fam.portKey(0), fam.dnat(s.any))
	}
	if limit.connections > 0 {
		c := base(connectionsChain, nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityMangle)
		if err := f.boundConnections(c, limit); err != nil {
			return fmt.Errorf("network: nftables set: %w", err)
		}
	}
	f.dropInvalid(base(invalidInChain, nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityMangle),
		base(invalidOutChain, nftables.ChainTypeFilter, nftables.ChainHookPostrouting, nftables.ChainPriorityMangle))
	jump := append(isLocal(), &expr.Verdict{Kind: expr.VerdictJump, Chain: hostportsChain})
	f.rule(base(preroutingChain, nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest), jump)
	f.rule(base(outputChain, nftables.ChainTypeNAT, nftables.ChainHookOutput, nftables.ChainPriorityNATDest), jump)
	post := base(postroutingChain, nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)
	guard := base(guardChain, nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRaw)
	f.rule(guard, f.fromBridge(), verdict(expr.VerdictDrop))
	f.rule(guard, group(expr.MetaKeyIIFGROUP, expr.CmpOpEq, LeavingGroup), verdict(expr.VerdictDrop))
	ranges := f.rules.cfg.Leases.UsedRanges()
	for _, fam := range families {
		f.translateSources(post, fam, ranges)
		for _, offset := range []uint32{fam.src, fam.dst} {
			f.rule(guard, fam.isFamily(), f.fromPods(expr.CmpOpEq), match(offset, fam.loopback), verdict(expr.VerdictDrop))
		}
		f.guardDNS(guard, fam)
	}
	f.refuseRouters(guard)
	if f.guards() {
		sources := base(sourcesChain, nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRef(*nftables.ChainPriorityRaw-1))
		if err := f.guardSources(sources, leases); err != nil {
			return err
		}
	}
	f.forwardRules(base(forwardChain, nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityFilter), forwards)
	return nil
}

// translateSources writes the rules of a family for what leaves by the host's address.
func (f *firewall) translateSources(post *nftables.Chain, fam family, ranges []netip.Prefix) {
	var gateway netip.Addr
	for _, r := range ranges {
		if r.Addr().BitLen() != int(fam.size)*8 {
			continue
		}
		if !gateway.IsValid() {
			gateway = lease.GatewayOf(r)
		}
		f.rule(post, fam.isFamily(), match(fam.src, r), f.toPods(expr.CmpOpNeq), []expr.Any{&expr.Masq{FullyRandom: true}})
		f.rule(post, fam.isFamily(), match(fam.src, r), f.toPods(expr.CmpOpEq), wasTranslated(), fam.portKey(fam.dst),
			[]expr.Any{&expr.Lookup{SourceRegister: keyRegister, SetName: fam.to}}, fam.snat(lease.GatewayOf(r)))
	}
	if gateway.IsValid() {
		f.rule(post, fam.isFamily(), match(fam.src, fam.loopback), f.toPods(expr.CmpOpEq), fam.snat(gateway))
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
func (f *firewall) refuseRouters(guard *nftables.Chain) {
	for _, typ := range []byte{134, 137} {
		f.rule(guard, f.fromPods(expr.CmpOpEq), []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_ICMPV6}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{typ}},
		}, verdict(expr.VerdictDrop))
	}
}

// rule adds a rule made of parts.
func (f *firewall) rule(chain *nftables.Chain, parts ...[]expr.Any) {
	var exprs []expr.Any
	for _, p := range parts {
		exprs = append(exprs, p...)
	}
	f.conn.AddRule(&nftables.Rule{Table: chain.Table, Chain: chain, Exprs: exprs})
	f.written[ownChain{chain.Table.Family, chain.Name}]++
}

func (fam family) isFamily() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{fam.proto}},
	}
}

// isLocal says that the destination is an address of the host.
func isLocal() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	}
}

// portKey loads protocol, address (unless its offset is 0) and destination port, as the sets have them.
func (fam family) portKey(address uint32) []expr.Any {
	register := uint32(keyRegister)
	key := []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register}}
	register++
	if address != 0 {
		key = append(key, &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: address, Len: fam.size})
		register += fam.size / 4
	}
	return append(key, &expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2})
}

// dnat translates the destination to what the map has for the key.
func (fam family) dnat(set *nftables.Set) []expr.Any {
	return []expr.Any{
		&expr.Lookup{SourceRegister: keyRegister, DestRegister: dataRegister, IsDestRegSet: true, SetName: set.Name, SetID: set.ID},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(fam.proto), RegAddrMin: dataRegister, RegProtoMin: dataRegister + fam.size/4, Specified: true},
	}
}

// match compares the address at this place of the header with a range.
func match(offset uint32, r netip.Prefix) []expr.Any {
	mask := net.CIDRMask(r.Bits(), r.Addr().BitLen())
	size := uint32(len(mask))
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: size, Mask: mask, Xor: make([]byte, size)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: r.Masked().Addr().AsSlice()},
	}
}

// fromBridge says that a packet has come in by the bridge itself.
func (f *firewall) fromBridge() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: interfaceName(f.rules.cfg.Bridge)},
	}
}

// wasTranslated says that the connection's destination was translated (IPS_DST_NAT of linux/netfilter).
func wasTranslated() []expr.Any {
	const dstNAT = 1 << 5
	return ctBit(expr.CtKeySTATUS, dstNAT, expr.CmpOpNeq)
}
