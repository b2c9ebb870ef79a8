package network

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
)

// next picks the address after last that is not in use, going round the range. The first address of the range (the
// network's), the second (the gateway's) and the last (the broadcast address) are never picked. It is pure.
func next(prefix netip.Prefix, last netip.Addr, used func(netip.Addr) bool) (netip.Addr, bool) {
	first, end := usable(prefix)
	a := first
	if last.IsValid() && !last.Less(first) && last.Less(end) {
		a = last.Next()
	}
	for range size(prefix) {
		if !used(a) {
			return a, true
		}
		if a = a.Next(); end.Less(a) {
			a = first
		}
	}
	return netip.Addr{}, false
}

// usable returns the first and the last address that a sandbox may get.
func usable(prefix netip.Prefix) (first, last netip.Addr) {
	base := prefix.Masked().Addr().As4()
	host := uint32(1)<<(32-prefix.Bits()) - 1
	n := uint32(base[0])<<24 | uint32(base[1])<<16 | uint32(base[2])<<8 | uint32(base[3])
	at := func(i uint32) netip.Addr {
		v := n + i
		return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
	}
	return at(2), at(host - 1)
}

// size is how many addresses of the range sandboxes may get.
func size(prefix netip.Prefix) int { return 1<<(32-prefix.Bits()) - 3 }

// macOf derives an interface's hardware address from its IP address. So it stays the same when an address is used
// again, and no neighbour's ARP cache is ever wrong. 0x0a: unicast, locally administered.
func macOf(a netip.Addr) net.HardwareAddr {
	ip := a.As4()
	return net.HardwareAddr{0x0a, 0x6d, ip[0], ip[1], ip[2], ip[3]}
}

// hostInterface names the host's end of a sandbox's veth pair: 14 bytes, the same each time.
func hostInterface(bridge, sandboxID string) string {
	sum := sha256.Sum256([]byte(bridge + "\x00" + sandboxID))
	return hostInterfacePrefix + hex.EncodeToString(sum[:6])
}

const hostInterfacePrefix = "mp"

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
			return fmt.Errorf("pod range %s overlaps the %s; set network.podCIDR to a range that is free", prefix, u.what)
		}
	}
	return nil
}
