package links

import (
	"crypto/sha256"
	"net"
	"net/netip"
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
