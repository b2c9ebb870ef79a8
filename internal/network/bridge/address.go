package bridge

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
)

// macOf derives an interface's hardware address from its (first) IP address. So it stays the same when an address is
// used again, and no neighbour's cache is ever wrong. 0x0a: unicast, locally administered.
func macOf(a netip.Addr) net.HardwareAddr {
	ip := a.AsSlice()
	if a.Is6() {
		sum := sha256.Sum256(ip)
		ip = sum[:4]
	}
	return net.HardwareAddr{0x0a, 0x6d, ip[0], ip[1], ip[2], ip[3]}
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// prefixOf converts what netlink tells; an invalid one is the zero Prefix.
func prefixOf(n *net.IPNet) netip.Prefix {
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

// use is an address range that the host uses already.
type use struct {
	prefix netip.Prefix
	what   string // "address 10.61.3.4/16 of eth1", "route 10.61.0.0/16 on tun0"
}

// overlap returns an error that names the first use that overlaps the range. It is pure. Routes so wide that they are
// default routes in disguise do not count: more specific ranges are what they are for.
func overlap(prefix netip.Prefix, uses []use) error {
	for _, u := range uses {
		if u.prefix.IsValid() && u.prefix.Bits() > 4 && u.prefix.Overlaps(prefix) {
			return fmt.Errorf("pod range %s overlaps the %s; set network.podCIDRs to a range that is free", prefix, u.what)
		}
	}
	return nil
}
