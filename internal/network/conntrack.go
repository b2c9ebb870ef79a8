package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
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

	ctaTupleOrig = 1
	ctaZone      = 18
	ctaFilter    = 25

	ctaTupleIP, ctaTupleProto           = 1, 2
	ctaIPv4Dst, ctaIPv6Dst              = 2, 4
	ctaProtoNum, ctaProtoDstPort        = 1, 3
	ctaFilterOrigFlags                  = 1
	ctaFilterProtoNum, ctaFilterDstPort = 1 << 3, 1 << 5
	sizeofNfgenmsg                      = 4
)

// forgetFlows makes the kernel forget the UDP flows to the host's ports of sandboxes. A UDP flow has no end: without this,
// packets of one that began before the port was mapped, or before it was taken away, would go where they went before, for
// as long as they keep coming.
func (b *Bridge) forgetFlows(recs ...lease) error {
	ports := map[uint16][]HostPort{}
	for _, rec := range recs {
		for _, p := range rec.HostPorts {
			if p.Protocol == "UDP" {
				ports[p.HostPort] = append(ports[p.HostPort], p)
			}
		}
	}
	if len(ports) == 0 {
		return nil
	}
	local, err := b.localAddresses()
	if err != nil {
		return err
	}
	err = b.deleteFlows(slices.Collect(maps.Keys(ports)), func(dst netip.Addr, port uint16) bool {
		return slices.ContainsFunc(ports[port], func(p HostPort) bool {
			return dst == p.HostIP || p.everywhere() && (dst.IsLoopback() || local[dst])
		})
	})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		// No reason to refuse the port: what sticks are flows that began before, for as long as they last.
		b.log.Warn("UDP flows that began before a host port was mapped or freed go on as before: the kernel does not hand out its flows (modprobe nf_conntrack_netlink)", "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("forgetting the UDP flows to host ports: %w", err)
	}
	return nil
}

// localAddresses are those that the host has.
func (b *Bridge) localAddresses() (map[netip.Addr]bool, error) {
	local := map[netip.Addr]bool{}
	msg := nl.NewIfAddrmsg(unix.AF_UNSPEC)
	err := b.rt.Dump(request{What: "list the host's addresses", Type: unix.RTM_GETADDR, Flags: unix.NLM_F_DUMP, Body: msg.Serialize()}, func(body []byte) {
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

// deleteFlows deletes the UDP flows to the ports that are selected. It goes once through all flows of the host, which takes
// the kernel some milliseconds.
func (b *Bridge) deleteFlows(ports []uint16, selected func(dst netip.Addr, port uint16) bool) error {
	var found []request
	collect := func(body []byte) {
		if len(body) < sizeofNfgenmsg {
			return
		}
		var tuple, zone []byte
		nlsock.EachAttr(body[sizeofNfgenmsg:], func(typ uint16, data []byte) {
			switch typ {
			case ctaTupleOrig:
				tuple = data
			case ctaZone:
				zone = data
			}
		})
		if dst, proto, port := parseTuple(tuple); proto != unix.IPPROTO_UDP || !selected(dst, port) {
			return
		}
		del := append([]byte{body[0], 0, 0, 0}, nl.NewRtAttr(ctaTupleOrig|unix.NLA_F_NESTED, slices.Clone(tuple)).Serialize()...)
		if zone != nil {
			del = append(del, nl.NewRtAttr(ctaZone, slices.Clone(zone)).Serialize()...)
		}
		found = append(found, request{What: "delete a flow", Type: ctDelete, Body: del})
	}
	list := request{What: "list the flows", Type: ctGet, Flags: unix.NLM_F_DUMP, Body: flowFilter(ports)}
	err := b.ct.Dump(list, collect)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		// A kernel before 5.8 knows no filter.
		list.Body, found = make([]byte, sizeofNfgenmsg), nil
		err = b.ct.Dump(list, collect)
	}
	if err != nil {
		return err
	}
	for _, q := range found {
		if err := b.ct.Do(q); err != nil && !errors.Is(err, unix.ENOENT) { // it has ended meanwhile
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

// parseTuple reads one direction of a flow. It is pure.
func parseTuple(tuple []byte) (dst netip.Addr, proto uint8, dport uint16) {
	nlsock.EachAttr(tuple, func(typ uint16, data []byte) {
		switch typ {
		case ctaTupleIP:
			nlsock.EachAttr(data, func(typ uint16, ip []byte) {
				if typ == ctaIPv4Dst || typ == ctaIPv6Dst {
					dst, _ = netip.AddrFromSlice(ip)
				}
			})
		case ctaTupleProto:
			nlsock.EachAttr(data, func(typ uint16, v []byte) {
				switch {
				case typ == ctaProtoNum && len(v) == 1:
					proto = v[0]
				case typ == ctaProtoDstPort && len(v) == 2:
					dport = binary.BigEndian.Uint16(v)
				}
			})
		}
	})
	return dst, proto, dport
}
