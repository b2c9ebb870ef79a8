package announce

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// look asks the kernel which addresses the host has, and of which networks they are. Pods' interfaces have none: a thousand of them take the kernel about a millisecond, and
// nobody else (BenchmarkLook).
func (a *Announcer) look() (links []link, has map[netip.Addr]place, err error) {
	all, err := addresses(a.nl)
	if err != nil {
		return nil, nil, err
	}
	networks := map[int][]netip.Prefix{}
	has = map[netip.Addr]place{}
	for i := range all {
		prefix, ok := prefixOf(&all[i])
		if !ok {
			continue
		}
		of := all[i].LinkIndex
		has[prefix.Addr()] = place{
			link: of, alone: prefix.IsSingleIP(),
			tentative: all[i].Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0, taken: all[i].Flags&unix.IFA_F_DADFAILED != 0,
		}
		if !prefix.IsSingleIP() {
			networks[of] = append(networks[of], prefix.Masked())
		}
	}
	for _, of := range slices.Sorted(maps.Keys(networks)) {
		l, err := a.nl.LinkByIndex(of)
		var gone netlink.LinkNotFoundError
		if errors.As(err, &gone) {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("interface %d: %w", of, err)
		}
		if attrs := l.Attrs(); a.announces(attrs) {
			links = append(links, link{of, attrs.Name, attrs.HardwareAddr.String(), attrs.RawFlags&unix.IFF_LOWER_UP != 0 && attrs.Flags&net.FlagUp != 0, networks[of]})
		}
	}
	return links, has, nil
}

// announces says whether neighbours on the interface ask for addresses.
func (a *Announcer) announces(l *netlink.LinkAttrs) bool {
	return l.RawFlags&(unix.IFF_LOOPBACK|unix.IFF_NOARP|unix.IFF_POINTOPOINT) == 0 && len(l.HardwareAddr) == 6 && (a.cfg.Own == nil || !a.cfg.Own(l.Group))
}

// addresses are those of the host.
func addresses(nl *netlink.Handle) (all []netlink.Addr, err error) {
	for range 10 { // it changes meanwhile
		if all, err = nl.AddrList(nil, unix.AF_UNSPEC); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the addresses of the host: %w", err)
	}
	return all, nil
}

// prefixOf is an address with the length of its network, of those that others reach.
func prefixOf(a *netlink.Addr) (p netip.Prefix, ok bool) {
	if a.IPNet == nil {
		return p, false
	}
	ip, ok := netip.AddrFromSlice(a.IP)
	if !ok {
		return p, false
	}
	if ip = ip.Unmap(); ip.IsLoopback() || ip.IsLinkLocalUnicast() {
		return p, false
	}
	bits, _ := a.Mask.Size()
	return netip.PrefixFrom(ip, bits), true
}

// made is an address as it is added: of no network, and the last that the kernel would take as a source. IPv4 has the scope for that (it is compared with that of the
// route), IPv6 the preferred lifetime (RFC 6724, rule 3).
func made(a netip.Addr) *netlink.Addr {
	const forever = 1<<32 - 1
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}, Flags: unix.IFA_F_NOPREFIXROUTE, ValidLft: forever}
	if a.Is4() {
		addr.Scope = unix.RT_SCOPE_LINK
	}
	return addr
}
