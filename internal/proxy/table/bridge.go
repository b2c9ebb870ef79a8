package table

import (
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Pods of one bridge send each other frames that the host never sees as packets. A pod that asked an address of a service would be answered from another one,
// by the endpoint directly, and would not know the answer as its own. So frames between pods that come from an endpoint of a service at this node, or go to
// one, are handed to the host, which routes them: their hardware address becomes the bridge's. The host's connection tracking sees both directions of a
// connection then, and nothing is said about pods' addresses: a server sees who asks it.
//
//	chain prerouting {
//	    type filter hook prerouting priority dstnat + 50;    # after the source guard
//	    meta iifgroup != <ports of the bridge> accept
//	    meta pkttype != other accept                         # only from pod to pod: not to the host, and not to many
//	    meta l4proto . ip saddr . th sport @endpoints4 goto host
//	    meta l4proto . ip daddr . th dport @endpoints4 goto host
//	    <what a server says about a connection to it: ICMP errors> goto host
//	    <the parts of a packet that came in several> goto host
//	    ...                                                   # the same for IPv6
//	}
//	chain host { ether daddr set <bridge>; meta pkttype set host }
//
// Which connections are a service's is not asked: that would take tracking of all that is bridged on this host, by whomever. What goes to an endpoint's own
// address directly goes the same way then, in both directions, as it must: a host that sees half of a connection takes it for invalid.
const (
	hostChain   = "host"
	packetHost  = 0 // linux/if_packet.h: PACKET_HOST
	packetOther = 3 // PACKET_OTHERHOST
)

func (s *shape) redirect(p site) {
	bridge := nftables.TableFamilyBridge
	s.chains = append(s.chains, chain{family: bridge, name: hostChain},
		chain{bridge, preroutingChain, nftables.ChainTypeFilter, nftables.ChainHookPrerouting, -250})
	add := func(chain string, parts ...[]expr.Any) {
		s.rule(chain, parts...)
		s.rules[len(s.rules)-1].family = bridge
	}
	host := to(expr.VerdictGoto, hostChain)
	add(preroutingChain, isGroup(expr.MetaKeyIIFGROUP, expr.CmpOpNeq, p.group), verdict(expr.VerdictAccept))
	add(preroutingChain, []expr.Any{&expr.Meta{Key: expr.MetaKeyPKTTYPE, Register: 1}, &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{packetOther}}},
		verdict(expr.VerdictAccept))
	for _, f := range families {
		set := "endpoints" + f.suffix
		e := etherOf(f)
		add(preroutingChain, e.is, f.frontAt(f.src, 0), in(set, keyRegister, false), host)
		add(preroutingChain, e.is, f.frontAt(f.dst, 2), in(set, keyRegister, false), host)
		add(preroutingChain, e.is, e.part, host)
		for _, typ := range e.errors {
			add(preroutingChain, e.is, is(expr.MetaKeyL4PROTO, e.icmp), transport(1, 0, 1), equals(typ), e.quoted(f), in(set, keyRegister, false), host)
		}
	}
	add(hostChain, []expr.Any{
		&expr.Immediate{Register: 1, Data: p.mac},
		&expr.Payload{OperationType: expr.PayloadWrite, SourceRegister: 1, Base: expr.PayloadBaseLLHeader, Offset: 0, Len: 6},
		&expr.Immediate{Register: 1, Data: []byte{packetHost}},
		&expr.Meta{Key: expr.MetaKeyPKTTYPE, Register: 1, SourceRegister: true},
	})
}

// ether is what differs between the families in frames.
type ether struct {
	is, part []expr.Any
	icmp     byte
	errors   []byte // types of ICMP messages that quote a packet
	header   uint32 // of the quoted packet, without options
	proto    uint32 // where it says which protocol it is of
	dst      uint32
}

func etherOf(f family) ether {
	protocol := func(v uint16) []expr.Any {
		return []expr.Any{&expr.Meta{Key: expr.MetaKeyPROTOCOL, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{byte(v >> 8), byte(v)}}}
	}
	if f.size == 4 {
		return ether{
			is: protocol(unix.ETH_P_IP),
			// More fragments, or an offset (RFC 791).
			part: []expr.Any{
				&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 6, Len: 2},
				&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 2, Mask: []byte{0x3f, 0xff}, Xor: make([]byte, 2)},
				&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 2)},
			},
			icmp: unix.IPPROTO_ICMP, errors: []byte{3, 11, 12}, header: 20, proto: 9, dst: 16,
		}
	}
	return ether{
		is: protocol(unix.ETH_P_IPV6),
		part: []expr.Any{
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 6, Len: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_FRAGMENT}},
		},
		icmp: unix.IPPROTO_ICMPV6, errors: []byte{1, 2, 3, 4}, header: 40, proto: 6, dst: 24,
	}
}

// quoted loads where the packet was sent to that an ICMP error is about. ICMP's own header has 8 bytes.
func (e ether) quoted(f family) []expr.Any {
	const icmp = 8
	return append(append(transport(keyRegister, icmp+e.proto, 1), transport(keyRegister+1, icmp+e.dst, f.size)...),
		transport(keyRegister+1+f.size/4, icmp+e.header+2, 2)...)
}

func transport(register, offset, size uint32) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: size}}
}

func equals(b byte) []expr.Any {
	return []expr.Any{&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{b}}}
}
