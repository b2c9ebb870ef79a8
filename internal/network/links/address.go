package links

import (
	"crypto/sha256"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/nlsock"
)

// MACOf derives an interface's hardware address from its (first) IP address. So it stays the same when an address is
// used again, and no neighbour's cache is ever wrong. 0x0a: unicast, locally administered.
func MACOf(a netip.Addr) net.HardwareAddr {
	ip := a.AsSlice()
	if a.Is6() {
		sum := sha256.Sum256(ip)
		ip = sum[:4]
	}
	return net.HardwareAddr{0x0a, 0x6d, ip[0], ip[1], ip[2], ip[3]}
}

// IPNet is an address and a range as package net has them.
func IPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// PrefixOf converts what netlink tells; an invalid one is the zero Prefix.
func PrefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	if !ok {
		return netip.Prefix{}
	}
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), bits)
}

func familyOf(a netip.Addr) uint16 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func addressRequest(a netip.Prefix, index int) request {
	family := familyOf(a.Addr())
	msg := nl.NewIfAddrmsg(int(family))
	msg.Prefixlen, msg.Index = uint8(a.Bits()), uint32(index)
	body := msg.Serialize()
	ip := a.Addr().AsSlice()
	body = append(body, nl.NewRtAttr(unix.IFA_LOCAL, ip).Serialize()...)
	body = append(body, nl.NewRtAttr(unix.IFA_ADDRESS, ip).Serialize()...)
	if family == unix.AF_INET6 {
		// The ledger has seen to it that nobody else has it: no second of waiting for duplicates. And no route to what is beside it.
		body = append(body, nl.NewRtAttr(unix.IFA_FLAGS, nl.Uint32Attr(unix.IFA_F_NODAD|unix.IFA_F_NOPREFIXROUTE)).Serialize()...)
	}
	return request{What: "give it the address " + a.String(), Type: unix.RTM_NEWADDR, Flags: unix.NLM_F_CREATE | unix.NLM_F_REPLACE, Body: body}
}

// noAutoIPv6 keeps the kernel from giving the interface of this index a link-local address, and
// with it from duplicate address detection and router solicitations: what addresses there are is the ledger's to say.
func noAutoIPv6(index int) request {
	q := linkRequest("switch IPv6 autoconfiguration off", unix.RTM_NEWLINK, 0, index, 0, nlsock.Nested(unix.IFLA_AF_SPEC, noAutoOf()))
	q.IPv6 = true
	return q
}

func noAutoOf() *nl.RtAttr {
	const none = 1 // IN6_ADDR_GEN_MODE_NONE
	return nlsock.Nested(unix.AF_INET6, nl.NewRtAttr(unix.IFLA_INET6_ADDR_GEN_MODE, []byte{none}))
}
