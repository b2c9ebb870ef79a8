package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"monopod.dev/monopod/internal/kit/iprange"
)

// block is a block of addresses that a policy names, without its exceptions.
type block struct {
	atom   string
	whole  netip.Prefix
	except []netip.Prefix
}

func parseBlock(b *networkingv1.IPBlock) (block, error) {
	whole, err := parsePrefix(b.CIDR)
	if err != nil {
		return block{}, fmt.Errorf("ipBlock.cidr %q: %w", b.CIDR, err)
	}
	out := block{whole: whole}
	for _, e := range b.Except {
		part, err := parsePrefix(e)
		if err != nil {
			return block{}, fmt.Errorf("ipBlock.except %q: %w", e, err)
		}
		out.except = append(out.except, part)
	}
	slices.SortFunc(out.except, netip.Prefix.Compare)
	var s strings.Builder
	s.WriteString("block " + whole.String())
	for _, e := range out.except {
		s.WriteString(" -" + e.String())
	}
	out.atom = s.String()
	return out, nil
}

// parsePrefix reads a range of addresses. What lies beyond the prefix does not count; an IPv4 range in the form of IPv6 is one of IPv4.
func parsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, err
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}

func (b block) has(a netip.Addr) bool {
	return b.whole.Contains(a) && !slices.ContainsFunc(b.except, func(e netip.Prefix) bool { return e.Contains(a) })
}

// segment are addresses, both ends included, that are of the same blocks.
type segment struct {
	from, to netip.Addr
	atoms    string
}

// segments cuts the addresses of all blocks into disjoint pieces, in order. What is of no block is of no segment.
func segments(blocks []block) (out []segment) {
	// A piece begins where a block or an exception begins, and after its end.
	var starts []netip.Addr
	cut := func(p netip.Prefix) {
		starts = append(starts, p.Addr())
		if next := iprange.Of(p).Last.Next(); next.IsValid() {
			starts = append(starts, next)
		}
	}
	for _, b := range blocks {
		cut(b.whole)
		for _, e := range b.except {
			cut(e)
		}
	}
	slices.SortFunc(starts, netip.Addr.Compare)
	starts = slices.Compact(starts)
	for i, from := range starts {
		var atoms []string
		for _, b := range blocks {
			if b.has(from) {
				atoms = append(atoms, b.atom)
			}
		}
		if len(atoms) == 0 {
			continue
		}
		to := highest(from)
		if i+1 < len(starts) && starts[i+1].BitLen() == from.BitLen() {
			to = starts[i+1].Prev()
		}
		name := joined(atoms)
		if n := len(out); n > 0 && out[n-1].atoms == name && out[n-1].to.Next() == from {
			out[n-1].to = to
			continue
		}
		out = append(out, segment{from, to, name})
	}
	return out
}

// atomsAt are the blocks that an address is of.
func atomsAt(all []segment, a netip.Addr) string {
	i, found := slices.BinarySearchFunc(all, a, func(s segment, a netip.Addr) int { return s.from.Compare(a) })
	if !found {
		i--
	}
	if i >= 0 && all[i].from.BitLen() == a.BitLen() && all[i].to.Compare(a) >= 0 {
		return all[i].atoms
	}
	return ""
}

// highest is the last address of a family.
func highest(a netip.Addr) netip.Addr { return iprange.Of(netip.PrefixFrom(a, 0)).Last }

// joined is a list as a name. The parts of it hold no line's end.
func joined(list []string) string {
	slices.Sort(list)
	return strings.Join(slices.Compact(list), "\n")
}
