package bridge

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/links"
	"monopod.dev/monopod/test/harness"
)

// station is a raw socket on eth0 of a sandbox: what a process with CAP_NET_RAW sends and sees.
type station struct {
	t       testing.TB
	fd      int
	mac     net.HardwareAddr
	host    net.HardwareAddr // of its gateway
	ip4     netip.Addr
	ip6     netip.Addr
	markers byte
}

func (h *testHost) station(path string, ips []netip.Addr) *station {
	h.t.Helper()
	s := &station{t: h.t, mac: links.MACOf(ips[0]), host: links.MACOf(gateway4)}
	for _, ip := range ips {
		if ip.Is4() {
			s.ip4 = ip
		} else {
			s.ip6 = ip
		}
	}
	h.in(path, func() (err error) {
		eth0, err := net.InterfaceByName(network.InterfaceName)
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

// arrives sends a frame, and after it one that nobody can object to, to the same sandbox, and says whether that one sees the first, too.
// What a sandbox sends does not overtake itself.
func (s *station) arrives(frame []byte, to *station) bool {
	s.t.Helper()
	s.markers++
	marker := []byte{0x99, 0x99, 0x99, 0x98, 0, 12, 0, 0, 'm', 'a', 'r', s.markers}
	s.send(frame)
	s.send(ethernet(s.host, s.mac, 0x0800, ipv4(s.ip4, to.ip4, marker)))
	// The end of it: what is before is another one's on the way.
	body := frame[max(14, len(frame)-24):]
	buf := make([]byte, 2048)
	for seen := false; ; {
		n, err := unix.Read(to.fd, buf)
		switch {
		case err != nil:
			s.t.Fatalf("the frame that nobody can object to has not come: %v", err)
		case bytes.Contains(buf[:n], marker):
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

// forgery is a frame, and when it may pass.
type forgery struct {
	name  string
	frame []byte
	passes
}

// passes says when a frame passes: always, where nobody guards sources, or never.
type passes int

const (
	always passes = iota
	unguarded
	never
)

// forgeries are all the ways to lie about who one is, and the ways not to.
func (x hostile) forgeries(gateway4, gateway6 netip.Addr) (all []forgery) {
	a, v, o := x.attacker, x.victim, x.other
	add := func(when passes, name string, frame []byte) { all = append(all, forgery{name, frame, when}) }
	zero4, zero6 := netip.IPv4Unspecified(), netip.IPv6Unspecified()
	text := func() []byte { return udp(fmt.Sprintf("forgery number %6d", len(all))) }
	toHost4 := func(when passes, name string, src netip.Addr) {
		add(when, name, ethernet(a.host, a.mac, 0x0800, ipv4(src, v.ip4, text())))
	}
	toHost6 := func(when passes, name string, src netip.Addr) {
		add(when, name, ethernet(a.host, a.mac, 0x86dd, ipv6(src, v.ip6, unix.IPPROTO_UDP, text())))
	}
	toHost4(always, "IPv4", a.ip4)
	toHost4(unguarded, "IPv4 address of another pod", o.ip4)
	toHost4(unguarded, "IPv4 address of the outside", netip.MustParseAddr("8.8.8.8"))
	toHost4(never, "IPv4 address of the gateway", gateway4) // the host's own address does not come from elsewhere
	toHost4(never, "IPv4 address of nobody", zero4)
	toHost4(never, "IPv4 address of the loopback", netip.MustParseAddr("127.0.0.1"))
	add(always, "hardware address of another pod", ethernet(a.host, o.mac, 0x0800, ipv4(a.ip4, v.ip4, text())))
	add(unguarded, "another pod altogether", ethernet(a.host, o.mac, 0x0800, ipv4(o.ip4, v.ip4, text())))
	add(never, "a frame for the pod itself", ethernet(v.mac, a.mac, 0x0800, ipv4(a.ip4, v.ip4, text())))
	add(never, "IPv4 to all", ethernet(everybody, a.mac, 0x0800, ipv4(a.ip4, netip.MustParseAddr("255.255.255.255"), text())))

	add(never, "ARP request", ethernet(everybody, a.mac, 0x0806, arp(1, a.mac, a.ip4, v.ip4)))
	add(never, "ARP reply", ethernet(v.mac, a.mac, 0x0806, arp(2, a.mac, a.ip4, v.ip4)))
	add(never, "ARP reply for another pod", ethernet(a.host, a.mac, 0x0806, arp(2, a.mac, o.ip4, gateway4)))
	add(never, "ARP request for the gateway from another pod", ethernet(everybody, a.mac, 0x0806, arp(1, a.mac, o.ip4, gateway4)))
	add(never, "ARP request for the gateway from nobody", ethernet(everybody, a.mac, 0x0806, arp(1, a.mac, netip.MustParseAddr("10.201.0.77"), gateway4)))
	add(never, "gratuitous ARP for another pod", ethernet(everybody, a.mac, 0x0806, arp(1, a.mac, o.ip4, o.ip4)))
	add(never, "RARP", ethernet(everybody, a.mac, 0x8035, arp(4, a.mac, a.ip4, a.ip4)))

	aLocal, oLocal := linkLocalOf(a.mac), linkLocalOf(o.mac)
	toHost6(always, "IPv6", a.ip6)
	toHost6(unguarded, "IPv6 address of another pod", o.ip6)
	for who, ip := range map[string]netip.Addr{"of the gateway": gateway6, "link-local": aLocal, "of another pod, link-local": oLocal, "of nobody": zero6, "of the loopback": netip.IPv6Loopback()} {
		when := never
		if ip == gateway6 {
			when = unguarded // IPv6 does not look for that
		}
		toHost6(when, "IPv6 address "+who, ip)
	}
	add(always, "echo request", ethernet(a.host, a.mac, 0x86dd, icmp6(a.ip6, v.ip6, append([]byte{128, 0, 0, 0, 1, 2, 3, 4}, "any echo in here? hello?"...))))
	nd := func(name string, src netip.Addr, message []byte) {
		add(never, name, ethernet(allNodesMAC, a.mac, 0x86dd, icmp6(src, allNodes, message)))
		add(never, name+", to the host", ethernet(a.host, a.mac, 0x86dd, icmp6(src, gateway6, message)))
		when := never
		if (src == a.ip6 || src == o.ip6) && message[0] != 134 && message[0] != 137 {
			when = unguarded // it comes over a hop, so nobody believes it (RFC 4861: hop limit 255)
		}
		add(when, name+", to the pod", ethernet(a.host, a.mac, 0x86dd, icmp6(src, v.ip6, message)))
	}
	nd("solicitation", o.ip6, neighbour(135, gateway6, hardwareOption(1, a.mac)))
	nd("advertisement for another pod", aLocal, neighbour(136, o.ip6, hardwareOption(2, a.mac)))
	nd("advertisement from another pod", o.ip6, neighbour(136, o.ip6, hardwareOption(2, a.mac)))
	nd("router advertisement", aLocal, append([]byte{134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0}, hardwareOption(1, a.mac)...))
	nd("router advertisement from the own address", a.ip6, append([]byte{134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0}, hardwareOption(1, a.mac)...))
	nd("redirect", a.ip6, append(neighbour(137, o.ip6), a.ip6.AsSlice()...))

	inner := ethernet(v.mac, a.mac, 0x0800, ipv4(o.ip4, v.ip4, udp("what is in a tag is looked at")))[12:]
	for _, vlan := range []byte{0, 5} {
		when := never
		if vlan == 0 {
			when = unguarded // the kernel takes such tags off, and looks at what is in them
		}
		add(when, fmt.Sprint("a tag, VLAN ", vlan), ethernet(a.host, a.mac, 0x8100, append([]byte{0, vlan}, inner...)))
		add(when, fmt.Sprint("two tags, VLAN ", vlan), ethernet(a.host, a.mac, 0x88a8, append([]byte{0, vlan, 0x81, 0, 0, vlan}, inner...)))
	}
	add(never, "PPPoE", ethernet(a.host, a.mac, 0x8864, append([]byte{0x11, 0, 0, 1, 0, 40, 0, 0x21}, inner[2:]...)))
	add(never, "a frame of IEEE 802.2", ethernet(a.host, a.mac, 40, inner))
	return all
}

// linkLocalOf is the link-local address that a hardware address has (RFC 4291, appendix A).
func linkLocalOf(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
}
