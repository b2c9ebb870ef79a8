// Package iprange has ranges of IP addresses, as a configuration names them.
package iprange

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Range is from the first to the last address, of one family.
type Range struct{ First, Last netip.Addr }

// Parse reads a prefix ("192.0.2.64/28"), two addresses ("192.0.2.64-192.0.2.79") or one ("192.0.2.64").
func Parse(s string) (Range, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		if p.Masked() != p {
			return Range{}, fmt.Errorf("range %q has host bits set: %s", s, p.Masked())
		}
		return checked(s, Of(p))
	}
	from, to, two := strings.Cut(s, "-")
	if !two {
		to = from
	}
	first, err := netip.ParseAddr(strings.TrimSpace(from))
	if err != nil {
		return Range{}, fmt.Errorf("range %q: %w", s, err)
	}
	end, err := netip.ParseAddr(strings.TrimSpace(to))
	if err != nil {
		return Range{}, fmt.Errorf("range %q: %w", s, err)
	}
	return checked(s, Range{first, end})
}

func checked(s string, r Range) (Range, error) {
	switch {
	case r.First.Zone() != "" || r.Last.Zone() != "" || r.First.Is4In6() || r.Last.Is4In6():
		return Range{}, fmt.Errorf("range %q is of addresses with a zone, or of IPv4 written as IPv6", s)
	case r.First.Is4() != r.Last.Is4():
		return Range{}, fmt.Errorf("range %q is of two families", s)
	case r.Last.Less(r.First):
		return Range{}, fmt.Errorf("range %q ends before it begins", s)
	}
	return r, nil
}

// Of is the range of a prefix.
func Of(p netip.Prefix) Range {
	first := p.Masked().Addr()
	b := first.AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	last, _ := netip.AddrFromSlice(b)
	return Range{first, last}
}

// Contain says that an address is in one of the ranges.
func Contain(ranges []Range, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(r Range) bool { return r.Contains(a) })
}

// Is4 says that the range is of IPv4.
func (r Range) Is4() bool { return r.First.Is4() }

// Contains says that an address is in the range.
func (r Range) Contains(a netip.Addr) bool {
	return a.Is4() == r.Is4() && !a.Less(r.First) && !r.Last.Less(a)
}

// Overlaps says that ranges have an address in common.
func (r Range) Overlaps(o Range) bool { return r.Contains(o.First) || o.Contains(r.First) }

func (r Range) String() string {
	if r.First == r.Last {
		return r.First.String()
	}
	return r.First.String() + "-" + r.Last.String()
}
