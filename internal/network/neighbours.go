package network

import (
	"encoding/binary"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The neighbours that every sandbox has are written down: its gateway in the sandbox, the sandbox on the host. The kernel has one table a family for all
// network namespaces, which is full at net.ipv4.neigh.default.gc_thresh3, 1024 entries: with two for each sandbox the host would reach 512 of them and no
// more. What was learned elsewhere (NTF_EXT_LEARNED) does not count there and is not collected; it is kept true by ARP and neighbour discovery as any other
// entry is. It also spares the first packet a question.

// gatewayRequests write the sandbox's gateways down, on its interface of this index.
func gatewayRequests(has []address, index int, bridge net.HardwareAddr) (reqs []request) {
	for _, a := range has {
		reqs = append(reqs, neighbourRequest("write down the gateway", a.Gateway, index, bridge))
	}
	return reqs
}

// sandboxRequests write the sandbox down on the host, on the bridge of this index.
func sandboxRequests(rec lease, index int) (reqs []request) {
	for _, a := range rec.Addresses {
		q := neighbourRequest("write down the sandbox", a.Address.Addr(), index, macOf(rec.Addresses[0].Address.Addr()))
		q.IPv6 = a.Address.Addr().Is6()
		reqs = append(reqs, q)
	}
	return reqs
}

// neighbourRequest writes down which hardware address an address has.
func neighbourRequest(what string, ip netip.Addr, index int, mac net.HardwareAddr) request {
	body := ndmsg(familyOf(ip), index, unix.NUD_REACHABLE, unix.NTF_EXT_LEARNED,
		nl.NewRtAttr(unix.NDA_DST, ip.AsSlice()), nl.NewRtAttr(unix.NDA_LLADDR, mac))
	return request{What: what + " " + ip.String(), Type: unix.RTM_NEWNEIGH, Flags: unix.NLM_F_CREATE | unix.NLM_F_REPLACE, Body: body}
}

// ndmsg is a struct ndmsg (rtnetlink(7)) with its attributes.
func ndmsg(family uint16, index int, state uint16, flags byte, attrs ...*nl.RtAttr) []byte {
	body := make([]byte, unix.SizeofNdMsg) // family, padding, index, state, flags, type
	body[0] = byte(family)
	binary.NativeEndian.PutUint32(body[4:], uint32(index))
	binary.NativeEndian.PutUint16(body[8:], state)
	body[10] = flags
	for _, a := range attrs {
		body = append(body, a.Serialize()...)
	}
	return body
}

// forgotten is how many sandboxes are forgotten at once: the kernel's answers are to fit into the socket's buffer.
const forgotten = 64

// forgetNeighbours takes from the host what it has written down of sandboxes, before their addresses are free. An entry that stays does no harm: who gets the
// address gets the same hardware address.
func (b *Bridge) forgetNeighbours(recs map[string]lease) {
	bridge, found, err := b.rt.link(b.name)
	if err == nil && found {
		for part := range slices.Chunk(slices.Collect(maps.Values(recs)), forgotten) {
			var reqs []request
			for _, rec := range part {
				for _, a := range rec.Addresses {
					ip := a.Address.Addr()
					body := ndmsg(familyOf(ip), bridge.index, 0, 0, nl.NewRtAttr(unix.NDA_DST, ip.AsSlice()))
					reqs = append(reqs, request{What: "forget the neighbour " + ip.String(), Type: unix.RTM_DELNEIGH, Body: body})
				}
			}
			err = b.rt.Do(reqs...)
		}
	}
	if err != nil {
		b.log.Debug("the host remembers where sandboxes were that are gone", "error", err)
	}
}
