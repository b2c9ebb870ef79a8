package answer

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	arpa4 = ".in-addr.arpa"
	arpa6 = ".ip6.arpa"
)

// reverse answers for the reverse name of an address.
func (a *asking) reverse(address netip.Addr) Reply {
	names := a.view.NamesOf(address)
	at := slices.IndexFunc(a.zone.Services, func(r netip.Prefix) bool { return r.Contains(address) })
	if len(names) == 0 && at < 0 {
		return Reply{Outcome: Elsewhere} // somebody else may know whose it is
	}
	if at >= 0 {
		a.soa = reverseZone(a.zone.Services[at])
	} else {
		a.soa = strings.ToLower(strings.TrimSuffix(a.question.Name.String(), "."))
	}
	if len(names) == 0 {
		return a.missing()
	}
	var all []dnsmessage.Resource
	for _, name := range names {
		if to, err := fqdn(name + "." + a.zone.Domain); err == nil {
			all = append(all, a.record(a.question.Name, dnsmessage.TypePTR, &dnsmessage.PTRResource{PTR: to}))
		}
	}
	return a.records(all...)
}

// reverse reads the address of a reverse name in lower case (RFC 1035, section 3.5; RFC 3596, section 2.5).
func reverse(name string) (address netip.Addr, ok bool) {
	if rest, ok := strings.CutSuffix(name, arpa4); ok {
		parts := strings.Split(rest, ".")
		if len(parts) != 4 {
			return address, false
		}
		slices.Reverse(parts)
		a, err := netip.ParseAddr(strings.Join(parts, "."))
		return a, err == nil
	}
	rest, ok := strings.CutSuffix(name, arpa6)
	if !ok || len(rest) != 63 { // 32 digits with dots between
		return address, false
	}
	var bytes [16]byte
	for i := range 32 {
		at := len(rest) - 1 - 2*i
		digit, err := strconv.ParseUint(rest[at:at+1], 16, 8)
		if err != nil || at > 0 && rest[at-1] != '.' {
			return address, false
		}
		bytes[i/2] = bytes[i/2]<<4 | byte(digit)
	}
	return netip.AddrFrom16(bytes), true
}

// Reversed is the reverse name of an address, without the last dot.
func Reversed(address netip.Addr) string {
	if address.Is4() {
		return reverseZone(netip.PrefixFrom(address, 32))
	}
	return reverseZone(netip.PrefixFrom(address, 128))
}

// reverseZone is the name above the reverse names of a range: of its whole bytes, or of its whole digits with IPv6.
func reverseZone(r netip.Prefix) string {
	var parts []string
	if a := r.Addr(); a.Is4() {
		for _, b := range a.AsSlice()[:r.Bits()/8] {
			parts = append(parts, strconv.Itoa(int(b)))
		}
		parts = append([]string{"arpa", "in-addr"}, parts...)
	} else {
		bytes := a.As16()
		for i := range r.Bits() / 4 {
			parts = append(parts, strconv.FormatUint(uint64(bytes[i/2]>>(4*(1-i%2))&0xf), 16))
		}
		parts = append([]string{"arpa", "ip6"}, parts...)
	}
	slices.Reverse(parts)
	return strings.Join(parts, ".")
}
