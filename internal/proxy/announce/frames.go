package announce

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
)

// Of ARP (RFC 826) over Ethernet for IPv4.
const (
	arpSize    = 28
	arpRequest = 1
)

var broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// arpAsking is an ARP request for an address. From none it is a probe (RFC 5227, section 2.1.1), from the address itself it announces it (section 2.3).
func arpAsking(mac net.HardwareAddr, from, about netip.Addr) []byte {
	b := binary.BigEndian.AppendUint16(nil, 1)  // Ethernet
	b = binary.BigEndian.AppendUint16(b, 0x800) // IPv4
	b = append(b, 6, 4)
	b = binary.BigEndian.AppendUint16(b, arpRequest)
	b = append(b, mac...)
	b = append(b, from.AsSlice()...)
	b = append(b, make([]byte, 6)...)
	return append(b, about.AsSlice()...)
}

// arpClaim reads an ARP packet of another machine's: which address it has, or is about to take, for a probe is as much as a claim (RFC 5227, section 2.1.1).
func arpClaim(b []byte, own net.HardwareAddr) (of netip.Addr, by net.HardwareAddr, ok bool) {
	if len(b) < arpSize || binary.BigEndian.Uint16(b) != 1 || binary.BigEndian.Uint16(b[2:]) != 0x800 || b[4] != 6 || b[5] != 4 {
		return of, nil, false
	}
	by = net.HardwareAddr(b[8:14])
	if by.String() == own.String() {
		return of, nil, false
	}
	from, about := netip.AddrFrom4([4]byte(b[14:18])), netip.AddrFrom4([4]byte(b[24:28]))
	if !from.IsUnspecified() {
		return from, by, true
	}
	return about, by, binary.BigEndian.Uint16(b[6:]) == arpRequest
}

// advertisement is an unsolicited neighbour advertisement (RFC 4861, section 4.4) that overrides what neighbours know of an address. The kernel adds the checksum.
func advertisement(mac net.HardwareAddr, of netip.Addr) ([]byte, error) {
	const override, targetLinkAddress = 0x20, 2
	body := append([]byte{override, 0, 0, 0}, of.AsSlice()...)
	body = append(append(body, targetLinkAddress, 1), mac...)
	return (&icmp.Message{Type: ipv6.ICMPTypeNeighborAdvertisement, Body: &icmp.RawBody{Data: body}}).Marshal(nil)
}
