package links

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/nlsock"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network/lease"
	"monopod.dev/monopod/internal/network/podnet"
)

// Each sandbox is a host of its own: the host has a route to each of its addresses by its interface, and the sandbox one to its gateway, by which it reaches all
// others. What is left of a range is unreachable, so that nobody waits for who is not there, and nobody can be asked for either.
//
// Both ends know each other's hardware address from the beginning, by entries for good (NUD_PERMANENT): nobody asks (the host's end does no ARP), and the kernel's table of neighbours,
// one a family for all network namespaces (net.ipv4.neigh.default.gc_thresh3), cannot be filled: such entries do not count there.

// OwnRoutes marks the host's routes that are this network's (rtm_protocol, of those that nobody is assigned). Of several nodes of a host each has its own ranges.
const OwnRoutes = 109

// unreachableMetric is the priority of the routes that make ranges unreachable: behind whatever the administrator has for them, and particular to the node, by its bridge's name.
func unreachableMetric(bridge string) int {
	sum := sha256.Sum256([]byte("unreachable beside " + bridge))
	return 1<<30 + int(binary.BigEndian.Uint16(sum[:]))
}

// hostRequests make the way from the host to a sandbox, by the host's end of this index. Connections that the host begins come from the gateway's address.
func hostRequests(rec lease.Lease, index int) (reqs []request) {
	mac := MACOf(rec.Addresses[0].Address.Addr())
	for _, a := range rec.Addresses {
		ip := a.Address.Addr()
		route := routeRequest("make a route to "+ip.String(), HostPrefix(ip), unix.RT_SCOPE_LINK, OwnRoutes, index, nl.NewRtAttr(unix.RTA_PREFSRC, a.Gateway.AsSlice()))
		neighbour := neighbourRequest("write down the sandbox", ip, index, mac)
		route.IPv6, neighbour.IPv6 = ip.Is6(), ip.Is6()
		reqs = append(reqs, route, neighbour)
	}
	return reqs
}

// insideRoutes make the way from a sandbox, by its interface of this index: to the gateways, and by them to all others.
func insideRoutes(has []lease.Address, index int, gateway net.HardwareAddr) (reqs []request) {
	for _, a := range has {
		reqs = append(reqs,
			routeRequest("make a route to "+a.Gateway.String(), HostPrefix(a.Gateway), unix.RT_SCOPE_LINK, unix.RTPROT_BOOT, index),
			neighbourRequest("write down the gateway", a.Gateway, index, gateway),
			routeRequest("set the default route to "+a.Gateway.String(), netip.PrefixFrom(zeroOf(a.Gateway), 0), unix.RT_SCOPE_UNIVERSE, unix.RTPROT_BOOT, index,
				nl.NewRtAttr(unix.RTA_GATEWAY, a.Gateway.AsSlice())))
	}
	return reqs
}

// routeRequest makes a route of the main table, or replaces the one that is there. Scopes are IPv4's.
func routeRequest(what string, to netip.Prefix, scope, protocol byte, index int, attrs ...*nl.RtAttr) request {
	msg := nl.NewRtMsg()
	msg.Family, msg.Dst_len, msg.Protocol = uint8(familyOf(to.Addr())), uint8(to.Bits()), protocol
	if to.Addr().Is4() {
		msg.Scope = scope
	}
	if to.Bits() > 0 {
		attrs = append(attrs, nl.NewRtAttr(unix.RTA_DST, to.Addr().AsSlice()))
	}
	if index != 0 {
		attrs = append(attrs, nl.NewRtAttr(unix.RTA_OIF, nl.Uint32Attr(uint32(index))))
	}
	body := msg.Serialize()
	for _, a := range attrs {
		body = append(body, a.Serialize()...)
	}
	return request{What: what, Type: unix.RTM_NEWROUTE, Flags: unix.NLM_F_CREATE | unix.NLM_F_REPLACE, Body: body}
}

// HostPrefix is the range of one address.
func HostPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func zeroOf(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// neighbourRequest writes down, for good, which hardware address an address has.
func neighbourRequest(what string, ip netip.Addr, index int, mac net.HardwareAddr) request {
	body := make([]byte, unix.SizeofNdMsg) // struct ndmsg of rtnetlink(7): family, padding, index, state, flags, type
	body[0] = byte(familyOf(ip))
	binary.NativeEndian.PutUint32(body[4:], uint32(index))
	binary.NativeEndian.PutUint16(body[8:], unix.NUD_PERMANENT)
	body = append(body, nl.NewRtAttr(unix.NDA_DST, ip.AsSlice()).Serialize()...)
	body = append(body, nl.NewRtAttr(unix.NDA_LLADDR, mac).Serialize()...)
	return request{What: what + " " + ip.String(), Type: unix.RTM_NEWNEIGH, Flags: unix.NLM_F_CREATE | unix.NLM_F_REPLACE, Body: body}
}

// Ways are the host's routes of this network.
type Ways struct {
	network podnet.Network
	nl      *netlink.Handle
	rt      *Socket
}

// CloseRanges makes what nobody has of these ranges unreachable, and no others any more.
func (w *Ways) CloseRanges(ranges []netip.Prefix) error {
	have, err := w.closedRanges()
	if err != nil {
		return err
	}
	var reqs []request
	for _, r := range ranges {
		if !slices.Contains(have, r.Masked()) {
			reqs = append(reqs, w.closeRequest(r))
		}
	}
	for _, r := range have {
		if !slices.ContainsFunc(ranges, func(want netip.Prefix) bool { return want.Masked() == r }) {
			q := w.closeRequest(r)
			q.What, q.Type, q.Flags = "take the unreachable "+r.String()+" away", unix.RTM_DELROUTE, 0
			reqs = append(reqs, q)
		}
	}
	if len(reqs) == 0 {
		return nil
	}
	if err := w.rt.Do(reqs...); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

func (w *Ways) closeRequest(r netip.Prefix) request {
	q := routeRequest("make the rest of "+r.String()+" unreachable", r.Masked(), unix.RT_SCOPE_UNIVERSE, OwnRoutes, 0,
		nlsock.Attr32(unix.RTA_PRIORITY, unreachableMetric(w.network.Name)))
	q.Body[7] = unix.RTN_UNREACHABLE // rtm_type of struct rtmsg
	return q
}

// closedRanges are those that this node has made unreachable.
func (w *Ways) closedRanges() (all []netip.Prefix, err error) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rts, err := Routes(w.nl, family)
		if err != nil {
			return nil, err
		}
		for _, r := range rts {
			if w.closes(r) {
				all = append(all, PrefixOf(r.Dst))
			}
		}
	}
	return all, nil
}

// closes says that a route makes a range of this node unreachable.
func (w *Ways) closes(r netlink.Route) bool {
	return r.Type == unix.RTN_UNREACHABLE && r.Protocol == OwnRoutes && r.Priority == unreachableMetric(w.network.Name)
}

// ownRouteGone reads a message of a route that somebody, or the kernel, has taken away, if it was one of a node's. It is pure.
func ownRouteGone(typ uint16, body []byte) (to netip.Prefix, ok bool) {
	if typ != unix.RTM_DELROUTE || len(body) < unix.SizeofRtMsg || body[5] != OwnRoutes { // rtm_protocol
		return to, false
	}
	nlsock.EachAttr(body[unix.SizeofRtMsg:], func(typ uint16, data []byte) {
		if a, valid := netip.AddrFromSlice(data); valid && typ == unix.RTA_DST {
			to, ok = netip.PrefixFrom(a, int(body[1])), true // rtm_dst_len
		}
	})
	return to, ok
}

// Missing are those that should be there: of each sandbox whose interface is there, and of each range.
func (w *Ways) Missing(ranges []netip.Prefix, leases map[ids.SandboxID]lease.Lease) (missing []netip.Prefix, err error) {
	want := map[netip.Prefix]bool{}
	for _, r := range ranges {
		want[r.Masked()] = true
	}
	connected := map[string]lease.Lease{} // by interface
	for _, rec := range leases {
		if !rec.Leaving {
			connected[rec.Interface] = rec
		}
	}
	all, err := interfaces(w.nl)
	if err != nil {
		return nil, err
	}
	for _, l := range all {
		for _, a := range connected[l.Attrs().Name].Addresses {
			want[HostPrefix(a.Address.Addr())] = a.Address.Addr().Is4() || HasIPv6()
		}
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rts, err := Routes(w.nl, family)
		if err != nil {
			return nil, err
		}
		for _, r := range rts {
			if r.Protocol == OwnRoutes {
				delete(want, PrefixOf(r.Dst))
			}
		}
	}
	for p, is := range want {
		if is {
			missing = append(missing, p)
		}
	}
	slices.SortFunc(missing, netip.Prefix.Compare)
	return missing, nil
}

// Use is an address range that the host uses already.
type Use struct {
	Prefix netip.Prefix
	What   string // "address 10.61.3.4/16 of eth1", "route 10.61.0.0/16 on tun0"
}

// Uses lists the addresses and routes of the host that are not this node's; own is the index of its bridge.
func (w *Ways) Uses(own int) ([]Use, error) {
	all, err := interfaces(w.nl)
	if err != nil {
		return nil, err
	}
	names, ends := map[int]string{}, map[int]bool{}
	for _, l := range all {
		names[l.Attrs().Index] = l.Attrs().Name
		ends[l.Attrs().Index] = l.Attrs().Group == w.network.PortGroup()
	}
	var uses []Use
	addrs, err := addresses(w.nl, nil, unix.AF_UNSPEC)
	if err != nil {
		return nil, err
	}
	for _, a := range addrs {
		if p := PrefixOf(a.IPNet); a.LinkIndex != own {
			uses = append(uses, Use{p, fmt.Sprintf("address %s of %s", p, names[a.LinkIndex])})
		}
	}
	rts, err := Routes(w.nl, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	for _, r := range rts {
		if p := PrefixOf(r.Dst); r.LinkIndex != own && !ends[r.LinkIndex] && !w.closes(r) {
			uses = append(uses, Use{p, fmt.Sprintf("route %s on %s", p, names[r.LinkIndex])})
		}
	}
	return uses, nil
}

// IsDefault says that a route is one to everywhere.
func IsDefault(r netlink.Route) bool {
	if r.Dst == nil {
		return true
	}
	ones, _ := r.Dst.Mask.Size()
	return ones == 0
}
