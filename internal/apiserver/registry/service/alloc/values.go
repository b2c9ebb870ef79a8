package alloc

import (
	"encoding/binary"
	"fmt"
	"math/big"
	"net/netip"
)

// The limits of ranges of addresses. Of a larger one the first addresses are given out: nobody has more services.
const (
	maxBits  = 20
	minCount = 8
)

// Addresses are the addresses of a range, without that of the range itself and, of IPv4, the last one, which is for broadcasts.
func Addresses(prefix netip.Prefix) (Values[netip.Addr], error) {
	if !prefix.IsValid() || prefix.Masked() != prefix || prefix.Addr().Is4In6() {
		return Values[netip.Addr]{}, fmt.Errorf("the range of services' addresses %s is none: use one such as 10.43.0.0/16", prefix)
	}
	if bits := prefix.Addr().BitLen() - prefix.Bits(); bits > maxBits && prefix.Addr().Is4() {
		return Values[netip.Addr]{}, fmt.Errorf("the range of services' addresses %s is too large: use a /%d or smaller", prefix, prefix.Addr().BitLen()-maxBits)
	}
	v := values(prefix)
	if v.Size < minCount {
		return Values[netip.Addr]{}, fmt.Errorf("the range of services' addresses %s is too small: use a /%d or larger", prefix, prefix.Addr().BitLen()-4)
	}
	return v, nil
}

// values are those of any range. Of a very large one the first are given out; who names another one has it.
func values(prefix netip.Prefix) Values[netip.Addr] {
	bits := prefix.Addr().BitLen() - prefix.Bits()
	size, last := 1<<min(bits, maxBits)-1, netip.Addr{}
	if prefix.Addr().Is4() {
		last = plus(prefix.Addr(), 1<<bits-1)
		if bits <= maxBits {
			size = max(size-1, 0)
		}
	}
	return Values[netip.Addr]{
		Size: size, Static: staticAddresses(size), At: func(place int) netip.Addr { return plus(prefix.Addr(), place+1) },
		Has: func(a netip.Addr) bool { return prefix.Contains(a) && a != prefix.Addr() && a != last },
	}
}

// plus is the address that is n after a.
func plus(a netip.Addr, n int) netip.Addr {
	if a.Is4() {
		raw := a.As4()
		binary.BigEndian.PutUint32(raw[:], binary.BigEndian.Uint32(raw[:])+uint32(n)) // a place in the range
		return netip.AddrFrom4(raw)
	}
	raw := a.As16()
	sum := new(big.Int).Add(new(big.Int).SetBytes(raw[:]), big.NewInt(int64(n)))
	sum.FillBytes(raw[:])
	return netip.AddrFrom16(raw)
}

// Ports are the ports from first to last.
func Ports(first, last uint16) Values[uint16] {
	size := int(last) - int(first) + 1
	return Values[uint16]{
		Size: size, Static: staticPorts(size),
		At:  func(place int) uint16 { return first + uint16(place) }, // a place in the range
		Has: func(port uint16) bool { return port >= first && port <= last },
	}
}

// staticAddresses is how many addresses are for those who name them: a sixteenth, between 16 and 256 (KEP-3070).
func staticAddresses(size int) int { return band(size, 16, 256) }

// staticPorts is how many ports are: a thirty-second, between 16 and 128 (KEP-3668).
func staticPorts(size int) int { return band(size, 32, 128) }

func band(size, part, most int) int {
	const least = 16
	if size <= least {
		return 0
	}
	return min(max(least, size/part), most)
}
