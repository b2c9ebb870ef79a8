package lease

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/kit/ids"
)

// next picks the address after last that is not in use, going round the range. What usable leaves out is never picked.
// It is pure.
func next(prefix netip.Prefix, last netip.Addr, used func(netip.Addr) bool) (netip.Addr, bool) {
	first, end := usable(prefix)
	start := first
	if last.IsValid() && last.Is4() == first.Is4() && !last.Less(first) && last.Less(end) {
		start = last.Next()
	}
	for a := start; ; {
		if !used(a) {
			return a, true
		}
		if a = a.Next(); !a.IsValid() || end.Less(a) {
			a = first
		}
		if a == start {
			return netip.Addr{}, false
		}
	}
}

// usable returns the first and the last address that a sandbox may get. The first address of a range is the network's (in
// IPv6 that of all its routers), the second the gateway's; the last one of an IPv4 range is the broadcast address.
func usable(prefix netip.Prefix) (first, last netip.Addr) {
	base := prefix.Masked().Addr()
	end := base.AsSlice()
	for i := prefix.Bits(); i < base.BitLen(); i++ {
		end[i/8] |= 0x80 >> (i % 8)
	}
	last, _ = netip.AddrFromSlice(end)
	if base.Is4() {
		last = last.Prev()
	}
	return GatewayOf(prefix).Next(), last
}

// GatewayOf is the bridge's address in a range.
func GatewayOf(prefix netip.Prefix) netip.Addr { return prefix.Masked().Addr().Next() }

// size is how many addresses of the range sandboxes may get.
func size(prefix netip.Prefix) uint64 {
	host := prefix.Addr().BitLen() - prefix.Bits()
	if host >= 64 {
		return math.MaxUint64
	}
	n := uint64(1)<<host - 2
	if prefix.Addr().Is4() {
		n--
	}
	return n
}

// CheckRanges returns the ranges in their one form, IPv4 first. It is pure.
//
// Errors: InvalidArgument (no range at all, more than one of a family, one that is too small or too large).
func CheckRanges(ranges []netip.Prefix) ([]netip.Prefix, error) {
	if len(ranges) == 0 {
		return nil, fmt.Errorf("network: no pod range: give one such as 10.61.0.0/16: %w", errdefs.ErrInvalidArgument)
	}
	out := make([]netip.Prefix, 0, len(ranges))
	for _, r := range ranges {
		switch a := r.Addr(); {
		case !r.IsValid() || a.Is4In6() || a.Zone() != "":
			return nil, fmt.Errorf("network: pod range %q: it must be a range such as 10.61.0.0/16 or fd00:10:61::/64: %w", r, errdefs.ErrInvalidArgument)
		case a.Is4() && (r.Bits() < 8 || r.Bits() > 30):
			return nil, fmt.Errorf("network: pod range %s: its size must be from /8 to /30: %w", r, errdefs.ErrInvalidArgument)
		case a.Is6() && (r.Bits() < 8 || r.Bits() > 126):
			return nil, fmt.Errorf("network: pod range %s: its size must be from /8 to /126: %w", r, errdefs.ErrInvalidArgument)
		case a.IsMulticast() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsUnspecified():
			return nil, fmt.Errorf("network: pod range %s: pods need unicast addresses: take a private range (10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, fd00::/8): %w", r, errdefs.ErrInvalidArgument)
		}
		for _, other := range out {
			if other.Addr().Is4() == r.Addr().Is4() {
				return nil, fmt.Errorf("network: pod ranges %s and %s are of one family: give at most one IPv4 and one IPv6 range: %w", other, r, errdefs.ErrInvalidArgument)
			}
		}
		out = append(out, r.Masked())
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int { return a.Addr().BitLen() - b.Addr().BitLen() })
	return out, nil
}

// DefaultIPv4 is the range of pods when none is configured.
var DefaultIPv4 = netip.MustParsePrefix("10.61.0.0/16")

// UniqueLocal derives a /64 out of fd00::/8 (RFC 4193) from what is particular to this machine and this bridge, so that
// it stays the same without being stored. It is pure.
func UniqueLocal(machine, bridge string) netip.Prefix {
	sum := sha256.Sum256([]byte("monopod pod range\x00" + machine + "\x00" + bridge))
	a := [16]byte{0: 0xfd}
	copy(a[1:6], sum[:5]) // the global id; the subnet id stays 0
	return netip.PrefixFrom(netip.AddrFrom16(a), 64)
}

// HostInterface names the host's end of a sandbox's veth pair: 14 bytes, the same each time.
func HostInterface(bridge string, sandboxID ids.SandboxID) string {
	sum := sha256.Sum256([]byte(bridge + "\x00" + string(sandboxID)))
	return HostInterfacePrefix + hex.EncodeToString(sum[:6])
}

const HostInterfacePrefix = "mp"
