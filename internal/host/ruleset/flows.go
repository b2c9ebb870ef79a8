package ruleset

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/nlsock"
)

// What linux/netfilter/nfnetlink_conntrack.h calls the messages and attributes that are used here.
const (
	ctGet    = nfnlSubsysConntrack<<8 | 1
	ctDelete = nfnlSubsysConntrack<<8 | 2

	nfnlSubsysConntrack = 1

	ctaTupleOrig  = 1
	ctaTupleReply = 2
	ctaZone       = 18
	ctaFilter     = 25

	ctaTupleIP, ctaTupleProto           = 1, 2
	ctaIPv4Src, ctaIPv4Dst              = 1, 2
	ctaIPv6Src, ctaIPv6Dst              = 3, 4
	ctaProtoNum                         = 1
	ctaProtoSrcPort, ctaProtoDstPort    = 2, 3
	ctaFilterOrigFlags                  = 1
	ctaFilterSource                     = 1 << 0
	ctaFilterProtoNum, ctaFilterDstPort = 1 << 3, 1 << 5
	sizeofNfgenmsg                      = 4
)

// Flow is a connection that the kernel tracks.
type Flow struct {
	Protocol uint8
	// To is where its first packet was sent to, and Answers who answers: the same, unless the packet's destination was translated.
	To, Answers netip.AddrPort
}

// DeleteFlows makes the kernel forget the UDP flows that are selected, of those to one of these ports, or with no ports of all. A UDP flow has no end: without
// this its packets would go where they went before, for as long as they keep coming. It goes once through all flows of the host, which takes the kernel some
// milliseconds. The socket is one of NETLINK_NETFILTER.
//
// Errors: EINVAL or EOPNOTSUPP where the kernel does not hand out its flows (nf_conntrack_netlink).
func DeleteFlows(s *nlsock.Socket, ports []uint16, selected func(Flow) bool) error {
	var found []nlsock.Request
	collect := func(body []byte) {
		del, there, back := deletion(body)
		if del != nil && there.proto == unix.IPPROTO_UDP && selected(Flow{there.proto, there.dst, back.src}) {
			found = append(found, nlsock.Request{What: "delete a flow", Type: ctDelete, Body: del})
		}
	}
	list := nlsock.Request{What: "list the flows", Type: ctGet, Flags: unix.NLM_F_DUMP, Body: flowFilter(ports)}
	err := s.Dump(list, collect)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		// A kernel before 5.8 knows no filter.
		list.Body, found = make([]byte, sizeofNfgenmsg), nil
		err = s.Dump(list, collect)
	}
	if err != nil {
		return err
	}
	return deleteAll(s, found)
}

// DeleteFlowsFrom makes the kernel forget all connections that an address has begun. It goes once through all flows of the host.
//
// Errors: EINVAL or EOPNOTSUPP where the kernel does not hand out its flows (nf_conntrack_netlink), or a kernel before 5.8.
func DeleteFlowsFrom(s *nlsock.Socket, source netip.Addr) error {
	filter := sourceFilter(source)
	err := s.Do(nlsock.Request{What: "delete the flows of " + source.String(), Type: ctDelete, Body: filter})
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	// A kernel before 6.9 deletes one at a time.
	var found []nlsock.Request
	err = s.Dump(nlsock.Request{What: "list the flows of " + source.String(), Type: ctGet, Flags: unix.NLM_F_DUMP, Body: filter}, func(body []byte) {
		if del, there, _ := deletion(body); del != nil && there.src.Addr() == source {
			found = append(found, nlsock.Request{What: "delete a flow", Type: ctDelete, Body: del})
		}
	})
	if err != nil {
		return err
	}
	return deleteAll(s, found)
}

// sourceFilter asks for the flows that an address has begun.
func sourceFilter(source netip.Addr) []byte {
	family, attr := byte(unix.AF_INET), ctaIPv4Src
	if source.Is6() {
		family, attr = unix.AF_INET6, ctaIPv6Src
	}
	body := []byte{family, 0, 0, 0}
	ip := nlsock.Nested(ctaTupleIP|unix.NLA_F_NESTED, nl.NewRtAttr(attr, source.AsSlice()))
	body = append(body, nlsock.Nested(ctaTupleOrig|unix.NLA_F_NESTED, ip).Serialize()...)
	return append(body, nlsock.Nested(ctaFilter|unix.NLA_F_NESTED, nlsock.Attr32(ctaFilterOrigFlags, ctaFilterSource)).Serialize()...)
}

// deletion is what deletes a listed flow, with its two directions; nil: the message is none of a flow.
func deletion(body []byte) (del []byte, there, back tuple) {
	if len(body) < sizeofNfgenmsg {
		return nil, there, back
	}
	var orig, reply, zone []byte
	nlsock.EachAttr(body[sizeofNfgenmsg:], func(typ uint16, data []byte) {
		switch typ {
		case ctaTupleOrig:
			orig = data
		case ctaTupleReply:
			reply = data
		case ctaZone:
			zone = data
		}
	})
	del = append([]byte{body[0], 0, 0, 0}, nl.NewRtAttr(ctaTupleOrig|unix.NLA_F_NESTED, slices.Clone(orig)).Serialize()...)
	if zone != nil {
		del = append(del, nl.NewRtAttr(ctaZone, slices.Clone(zone)).Serialize()...)
	}
	return del, parseTuple(orig), parseTuple(reply)
}

// deleteAll makes these requests; a flow that has ended meanwhile is none to delete.
func deleteAll(s *nlsock.Socket, found []nlsock.Request) error {
	for _, q := range found {
		if err := s.Do(q); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

// flowFilter asks for UDP flows only, and with a single port for those to it, so that no others are handed over.
func flowFilter(ports []uint16) []byte {
	proto := []*nl.RtAttr{nl.NewRtAttr(ctaProtoNum, []byte{unix.IPPROTO_UDP})}
	flags := ctaFilterProtoNum
	if len(ports) == 1 {
		proto = append(proto, nl.NewRtAttr(ctaProtoDstPort, binary.BigEndian.AppendUint16(nil, ports[0])))
		flags |= ctaFilterDstPort
	}
	body := make([]byte, sizeofNfgenmsg) // of both families
	body = append(body, nlsock.Nested(ctaTupleOrig|unix.NLA_F_NESTED, nlsock.Nested(ctaTupleProto|unix.NLA_F_NESTED, proto...)).Serialize()...)
	return append(body, nlsock.Nested(ctaFilter|unix.NLA_F_NESTED, nlsock.Attr32(ctaFilterOrigFlags, flags)).Serialize()...)
}

// tuple is one direction of a flow.
type tuple struct {
	proto    uint8
	src, dst netip.AddrPort
}

// parseTuple reads one direction of a flow. It is pure.
func parseTuple(raw []byte) (t tuple) {
	var src, dst netip.Addr
	var sport, dport uint16
	nlsock.EachAttr(raw, func(typ uint16, data []byte) {
		switch typ {
		case ctaTupleIP:
			nlsock.EachAttr(data, func(typ uint16, ip []byte) {
				switch typ {
				case ctaIPv4Src, ctaIPv6Src:
					src, _ = netip.AddrFromSlice(ip)
				case ctaIPv4Dst, ctaIPv6Dst:
					dst, _ = netip.AddrFromSlice(ip)
				}
			})
		case ctaTupleProto:
			nlsock.EachAttr(data, func(typ uint16, v []byte) {
				switch {
				case typ == ctaProtoNum && len(v) == 1:
					t.proto = v[0]
				case typ == ctaProtoSrcPort && len(v) == 2:
					sport = binary.BigEndian.Uint16(v)
				case typ == ctaProtoDstPort && len(v) == 2:
					dport = binary.BigEndian.Uint16(v)
				}
			})
		}
	})
	t.src, t.dst = netip.AddrPortFrom(src, sport), netip.AddrPortFrom(dst, dport)
	return t
}

// LocalAddresses are those that the host has. The socket is one of NETLINK_ROUTE.
func LocalAddresses(s *nlsock.Socket) (map[netip.Addr]bool, error) {
	local := map[netip.Addr]bool{}
	msg := nl.NewIfAddrmsg(unix.AF_UNSPEC)
	err := s.Dump(nlsock.Request{What: "list the host's addresses", Type: unix.RTM_GETADDR, Flags: unix.NLM_F_DUMP, Body: msg.Serialize()}, func(body []byte) {
		if len(body) < unix.SizeofIfAddrmsg {
			return
		}
		nlsock.EachAttr(body[unix.SizeofIfAddrmsg:], func(typ uint16, data []byte) {
			if a, ok := netip.AddrFromSlice(data); ok && (typ == unix.IFA_LOCAL || typ == unix.IFA_ADDRESS) {
				local[a] = true
			}
		})
	})
	return local, err
}
