package network

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/test/harness"
)

// station is a raw socket on eth0 of a sandbox: what a process with CAP_NET_RAW sends and sees.
type station struct {
	t       testing.TB
	fd      int
	mac     net.HardwareAddr
	ip4     netip.Addr
	ip6     netip.Addr
	markers byte
}

func (h *testHost) station(path string, ips []netip.Addr) *station {
	h.t.Helper()
	s := &station{t: h.t, mac: macOf(ips[0])}
	for _, ip := range ips {
		if ip.Is4() {
			s.ip4 = ip
		} else {
			s.ip6 = ip
		}
	}
	h.in(path, func() (err error) {
		eth0, err := net.InterfaceByName(containerInterface)
		if err != nil {
			return err
		}
		const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // in network order
		if s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all&0xffff); err != nil {
			return err
		}
		limit := unix.NsecToTimeval((60 * time.Second * harness.SlowFactor()).Nanoseconds())
		if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
			return err
		}
		return unix.Bind(s.fd, &unix.SockaddrLinklayer{Protocol: all & 0xffff, Ifindex: eth0.Index})
	})
	h.t.Cleanup(func() { unix.Close(s.fd) })
	return s
}

func (s *station) send(frame []byte) {
	s.t.Helper()
	if _, err := unix.Write(s.fd, frame); err != nil {
		s.t.Fatalf("sending a frame: %v", err)
	}
}

// arrives sends a frame, and after it one that nobody can object to, and says whether the other station sees the first, too.
// Frames of a port do not overtake each other.
func (s *station) arrives(frame []byte, to *station) bool {
	s.t.Helper()
	s.markers++
	marker := ethernet(to.mac, s.mac, 0x0800, ipv4(s.ip4, to.ip4, []byte{0x99, 0x99, 0x99, 0x98, 0, 12, 0, 0, 'm', 'a', 'r', s.markers}))
	s.send(frame)
	s.send(marker)
	// Without the beginning: of a tag the kernel tells beside the frame.
	body := frame[max(14, len(frame)-40):]
	buf := make([]byte, 2048)
	for seen := false; ; {
		n, err := unix.Read(to.fd, buf)
		switch {
		case err != nil:
			s.t.Fatalf("the frame that nobody can object to has not come: %v", err)
		case bytes.Equal(buf[:n], marker):
			return seen
		case bytes.Contains(buf[:n], body):
			seen = true
		}
	}
}

func ethernet(dst, src net.HardwareAddr, typ uint16, body []byte) []byte {
	return append(binary.BigEndian.AppendUint16(append(bytes.Clone(dst), src...), typ), body...)
}

// ipv4 is a UDP packet whose payload begins with the UDP header.
func ipv4(src, dst netip.Addr, payload []byte) []byte {
	b := []byte{0x45, 0, 0, byte(20 + len(payload)), 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}
	b = append(append(b, src.AsSlice()...), dst.AsSlice()...)
	binary.BigEndian.PutUint16(b[10:], checksum(b))
	return append(b, payload...)
}

func udp(text string) []byte {
	return append([]byte{9, 9, 9, 9, 0, byte(8 + len(text)), 0, 0}, text...)
}

func ipv6(src, dst netip.Addr, next byte, payload []byte) []byte {
	b := []byte{0x60, 0, 0, 0, 0, byte(len(payload)), next, 255}
	return append(append(append(b, src.AsSlice()...), dst.AsSlice()...), payload...)
}

// icmp6 is an ICMPv6 packet with its checksum.
func icmp6(src, dst netip.Addr, message []byte) []byte {
	return ipv6(src, dst, unix.IPPROTO_ICMPV6, summed(src, dst, message))
}

func summed(src, dst netip.Addr, message []byte) []byte {
	pseudo := append(append(src.AsSlice(), dst.AsSlice()...), 0, 0, 0, byte(len(message)), 0, 0, 0, unix.IPPROTO_ICMPV6)
	m := bytes.Clone(message)
	binary.BigEndian.PutUint16(m[2:], checksum(append(pseudo, m...)))
	return m
}

func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(b[i]) << 8
		if i+1 < len(b) {
			sum += uint32(b[i+1])
		}
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

func arp(operation byte, mac net.HardwareAddr, sender netip.Addr, target netip.Addr) []byte {
	b := append([]byte{0, 1, 8, 0, 6, 4, 0, operation}, mac...)
	b = append(append(b, sender.AsSlice()...), 0, 0, 0, 0, 0, 0)
	return append(b, target.AsSlice()...)
}

// neighbour is a message of neighbour discovery with its options.
func neighbour(typ byte, target netip.Addr, options ...[]byte) []byte {
	b := append([]byte{typ, 0, 0, 0, 0x60, 0, 0, 0}, target.AsSlice()...)
	for _, o := range options {
		b = append(b, o...)
	}
	return b
}

func hardwareOption(typ byte, mac net.HardwareAddr) []byte { return append([]byte{typ, 1}, mac...) }

// hostile is a pod that sends, one that is lied to, and one whose addresses are abused.
type hostile struct{ attacker, victim, other *station }

func (h *testHost) hostile(b *Bridge) hostile {
	h.t.Helper()
	connect := func(id string) *station {
		path := h.sandbox(id)
		return h.station(path, h.connectPorts(b, id, path))
	}
	return hostile{connect("attacker"), connect("victim"), connect("other")}
}

var (
	everybody   = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	allNodes    = netip.MustParseAddr("ff02::1")
	allNodesMAC = net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}
)

// forgery is a frame, and whether it may pass.
type forgery struct {
	name  string
	frame []byte
	good  bool
}

// forgeries are all the ways to lie about who one is, and the ways not to.
func (x hostile) forgeries(gateway4, gateway6 netip.Addr) (all []forgery) {
	a, v, o := x.attacker, x.victim, x.other
	add := func(good bool, name string, frame []byte) { all = append(all, forgery{name, frame, good}) }
	zero4, zero6 := netip.IPv4Unspecified(), netip.IPv6Unspecified()
	text := udp("is anybody there?")

	add(true, "IPv4", ethernet(v.mac, a.mac, 0x0800, ipv4(a.ip4, v.ip4, text)))
	add(true, "IPv4 to all", ethernet(everybody, a.mac, 0x0800, ipv4(a.ip4, netip.MustParseAddr("255.255.255.255"), text)))
	add(false, "hardware address of another pod", ethernet(v.mac, o.mac, 0x0800, ipv4(a.ip4, v.ip4, text)))
	add(false, "hardware address of nobody", ethernet(v.mac, net.HardwareAddr{2, 3, 4, 5, 6, 7}, 0x0800, ipv4(a.ip4, v.ip4, text)))
	for who, ip := range map[string]netip.Addr{"of another pod": o.ip4, "of the gateway": gateway4, "of the outside": netip.MustParseAddr("8.8.8.8"),
		"of the victim itself": v.ip4, "of nobody": zero4, "of the loopback": netip.MustParseAddr("127.0.0.1")} {
		add(false, "IPv4 address "+who, ethernet(v.mac, a.mac, 0x0800, ipv4(ip, v.ip4, text)))
	}
	add(false, "another pod altogether", ethernet(v.mac, o.mac, 0x0800, ipv4(o.ip4, v.ip4, text)))

	add(true, "ARP request", ethernet(everybody, a.mac, 0x0806, arp(1, a.mac, a.ip4, v.ip4)))
	add(true, "gratuitous ARP", ethernet(everybody, a.mac, 0x0806, arp(1, a.mac, a.ip4, a.ip4)))
	add(true, "ARP reply", ethernet(v.mac, a.mac, 0x0806, arp(2, a.mac, a.ip4, v.ip4)))
	add(true, "ARP probe for the own address", ethernet(everybody, a.mac, 0x0806, arp(1, a.mac, zero4, a.ip4)))
	add(false, "ARP reply for another pod", ethernet(v.mac, a.mac, 0x0806, arp(2, a.mac, o.ip4, v.ip4)))
	add(false, "ARP reply for the gateway", ethernet(v.mac, a.mac, 0x0806, arp(2, a.mac, gateway4, v.ip4)))
	add(false, "gratuitous ARP for another pod", ethernet(everybody, a.mac, 0x0806, arp(1, a.mac, o.ip4, o.ip4)))
	add(false, "ARP that gives the own address to another pod's hardware", ethernet(everybody, a.mac, 0x0806, arp(2, o.mac, a.ip4, v.ip4)))
	add(false, "ARP in a frame of another pod", ethernet(everybody, o.mac, 0x0806, arp(2, a.mac, a.ip4, v.ip4)))
	add(false, "ARP probe for another pod's address", ethernet(everybody, a.mac, 0x0806, arp(1, a.mac, zero4, v.ip4)))
	add(false, "ARP of another format", ethernet(everybody, a.mac, 0x0806, append([]byte{0, 6}, arp(2, a.mac, a.ip4, v.ip4)[2:]...)))
	add(false, "RARP", ethernet(everybody, a.mac, 0x8035, arp(4, a.mac, a.ip4, a.ip4)))

	aLocal, oLocal := linkLocalOf(a.mac), linkLocalOf(o.mac)
	add(true, "IPv6", ethernet(v.mac, a.mac, 0x86dd, ipv6(a.ip6, v.ip6, unix.IPPROTO_UDP, text)))
	add(true, "IPv6, link-local", ethernet(v.mac, a.mac, 0x86dd, ipv6(aLocal, v.ip6, unix.IPPROTO_UDP, text)))
	for who, ip := range map[string]netip.Addr{"of another pod": o.ip6, "of the gateway": gateway6, "of the gateway, link-local": linkLocal.Addr(),
		"of another pod, link-local": oLocal, "of nobody": zero6, "of the loopback": netip.IPv6Loopback()} {
		add(false, "IPv6 address "+who, ethernet(v.mac, a.mac, 0x86dd, ipv6(ip, v.ip6, unix.IPPROTO_UDP, text)))
	}
	nd := func(good bool, name string, src netip.Addr, message []byte) {
		add(good, name, ethernet(allNodesMAC, a.mac, 0x86dd, icmp6(src, allNodes, message)))
	}
	nd(true, "solicitation", a.ip6, neighbour(135, v.ip6, hardwareOption(1, a.mac)))
	nd(true, "solicitation, link-local", aLocal, neighbour(135, v.ip6, hardwareOption(1, a.mac)))
	nd(true, "solicitation without an option", a.ip6, neighbour(135, v.ip6))
	nd(true, "duplicate address detection", zero6, neighbour(135, a.ip6))
	nd(true, "duplicate address detection, link-local, with a nonce", zero6, neighbour(135, aLocal, []byte{14, 1, 1, 2, 3, 4, 5, 6}))
	nd(true, "advertisement", a.ip6, neighbour(136, a.ip6, hardwareOption(2, a.mac)))
	nd(true, "advertisement without an option", a.ip6, neighbour(136, a.ip6))
	nd(true, "router solicitation", aLocal, append([]byte{133, 0, 0, 0, 0, 0, 0, 0}, hardwareOption(1, a.mac)...))
	nd(true, "echo request", a.ip6, []byte{128, 0, 0, 0, 1, 2, 3, 4})
	nd(false, "solicitation from another pod", o.ip6, neighbour(135, v.ip6, hardwareOption(1, a.mac)))
	nd(false, "solicitation with another pod's hardware", a.ip6, neighbour(135, v.ip6, hardwareOption(1, o.mac)))
	nd(false, "solicitation with two options", a.ip6, neighbour(135, v.ip6, hardwareOption(1, a.mac), hardwareOption(1, o.mac)))
	nd(false, "duplicate address detection of another pod's address", zero6, neighbour(135, v.ip6))
	nd(false, "advertisement for another pod", a.ip6, neighbour(136, o.ip6, hardwareOption(2, a.mac)))
	nd(false, "advertisement for another pod without an option", a.ip6, neighbour(136, o.ip6))
	nd(false, "advertisement for the gateway", a.ip6, neighbour(136, gateway6, hardwareOption(2, a.mac)))
	nd(false, "advertisement from another pod", o.ip6, neighbour(136, o.ip6, hardwareOption(2, a.mac)))
	nd(false, "advertisement with another pod's hardware", a.ip6, neighbour(136, a.ip6, hardwareOption(2, o.mac)))
	nd(false, "advertisement with an option before", a.ip6, neighbour(136, a.ip6, []byte{14, 1, 1, 2, 3, 4, 5, 6}, hardwareOption(2, o.mac)))
	nd(false, "advertisement from nobody", zero6, neighbour(136, a.ip6, hardwareOption(2, a.mac)))
	nd(false, "router advertisement", aLocal, append([]byte{134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0}, hardwareOption(1, a.mac)...))
	nd(false, "redirect", aLocal, append(neighbour(137, o.ip6), a.ip6.AsSlice()...))
	hidden := summed(a.ip6, allNodes, neighbour(136, o.ip6, hardwareOption(2, a.mac)))
	add(false, "advertisement behind an extension header", ethernet(allNodesMAC, a.mac, 0x86dd,
		ipv6(a.ip6, allNodes, unix.IPPROTO_DSTOPTS, append([]byte{unix.IPPROTO_ICMPV6, 0, 1, 4, 0, 0, 0, 0}, hidden...))))

	inner := ethernet(v.mac, a.mac, 0x0800, ipv4(o.ip4, v.ip4, text))[12:]
	for _, vlan := range []byte{0, 5} {
		add(false, fmt.Sprint("a tag, VLAN ", vlan), ethernet(v.mac, a.mac, 0x8100, append([]byte{0, vlan}, inner...)))
		add(false, fmt.Sprint("two tags, VLAN ", vlan), ethernet(v.mac, a.mac, 0x88a8, append([]byte{0, vlan, 0x81, 0, 0, vlan}, inner...)))
	}
	add(false, "PPPoE", ethernet(v.mac, a.mac, 0x8864, append([]byte{0x11, 0, 0, 1, 0, 40, 0, 0x21}, inner[2:]...)))
	add(false, "a frame of IEEE 802.2", ethernet(v.mac, a.mac, 40, inner))
	return all
}
