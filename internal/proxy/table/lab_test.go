package table

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/network/podnet"
	"monopod.dev/monopod/test/harness"
)

const (
	testBridge = "mps0"
	testTable  = "mps0-services"
)

var (
	pods4, pods6 = netip.MustParsePrefix("10.88.0.0/24"), netip.MustParsePrefix("fd88::/64")
	vip4, vip6   = netip.MustParseAddr("10.99.0.10"), netip.MustParseAddr("fd99::10")
	hostMAC      = net.HardwareAddr{0x0a, 0x6d, 0, 0, 0, 1} // of the host's ends
)

// networksOf are those of a node with this bridge.
func networksOf(bridge string) podnet.Networks { return podnet.Networks{{Name: bridge}} }

// testHost is a network namespace that plays the host, with pods that it routes, as package network connects them, and a network outside.
type testHost struct {
	t        *testing.T
	dir      string
	gateways []netip.Addr
	pods     int
	outside  string     // a machine of the host's network
	host     netip.Addr // the host there
	machine  netip.Addr // the machine
	own      *nftables.Table
}

func newHost(t *testing.T) *testHost {
	t.Helper()
	harness.NewNetwork(t)
	h := &testHost{t: t, dir: t.TempDir(), gateways: []netip.Addr{pods4.Addr().Next(), pods6.Addr().Next()}}
	h.set("net/ipv4/ip_forward", "1")
	h.set("net/ipv6/conf/all/forwarding", "1")
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Group = testBridge, podnet.BridgeGroup
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	h.must(netlink.LinkAdd(bridge))
	t.Cleanup(func() { h.must(netlink.LinkDel(bridge)) })
	for _, g := range h.gateways {
		h.must(netlink.AddrAdd(bridge, alone(g)))
	}
	h.must(netlink.LinkSetUp(bridge))
	h.network()
	h.ownTable()
	return h
}

func (h *testHost) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// set sets a sysctl of the calling thread's namespace.
func (h *testHost) set(name, value string) {
	h.t.Helper()
	h.must(os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0))
}

func single(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// alone is an address of no network.
func alone(a netip.Addr) *netlink.Addr {
	return &netlink.Addr{IPNet: single(a), Flags: unix.IFA_F_NODAD * (a.BitLen() / 128)}
}

// sandbox makes a network namespace, pinned at the returned path.
func (h *testHost) sandbox(name string) string {
	h.t.Helper()
	path := filepath.Join(h.dir, name)
	harness.PinNetNS(h.t, path)
	return path
}

// pod makes a pod of this node.
func (h *testHost) pod(name string) (path string, ips []netip.Addr) {
	h.t.Helper()
	return h.podOf(testBridge, name)
}

// podOf makes a pod of the node that has this bridge.
func (h *testHost) podOf(bridge, name string) (path string, ips []netip.Addr) {
	h.t.Helper()
	path = h.sandbox(name)
	h.pods++
	n := byte(h.pods)
	four, six := pods4.Addr().As4(), pods6.Addr().As16()
	four[3], six[15] = n+1, n+1
	ips = []netip.Addr{netip.AddrFrom4(four), netip.AddrFrom16(six)}
	mac := net.HardwareAddr{0x0a, 0x6d, 0, 0, 1, n}
	ns, err := os.Open(path)
	h.must(err)
	defer ns.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Group, attrs.HardwareAddr = fmt.Sprintf("mp%012x", h.pods), (podnet.Network{Name: bridge}).PortGroup(), hostMAC
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerHardwareAddr: mac, PeerNamespace: netlink.NsFd(int(ns.Fd()))}
	h.must(netlink.LinkAdd(veth))
	h.t.Cleanup(func() { h.must(netlink.LinkDel(veth)) })
	h.must(netlink.LinkSetARPOff(veth))
	h.set("net/ipv6/conf/"+attrs.Name+"/addr_gen_mode", "1") // none: the host's end has no address
	h.set("net/ipv4/conf/"+attrs.Name+"/route_localnet", "1")
	h.must(netlink.LinkSetUp(veth))
	h.at(path, func() error { return h.inside(ips) })
	for i, ip := range ips {
		h.must(netlink.NeighSet(&netlink.Neigh{LinkIndex: veth.Index, IP: ip.AsSlice(), State: netlink.NUD_PERMANENT, HardwareAddr: mac}))
		h.must(netlink.RouteAdd(&netlink.Route{LinkIndex: veth.Index, Dst: single(ip), Src: h.gateways[i].AsSlice(), Scope: netlink.SCOPE_LINK}))
	}
	return path, ips
}

// inside gives a pod its addresses, and its way to everywhere.
func (h *testHost) inside(ips []netip.Addr) error {
	for _, name := range []string{"lo", "eth0"} {
		l, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(l)
		}
		if err != nil {
			return err
		}
	}
	eth0, err := netlink.LinkByName("eth0")
	for i, ip := range ips {
		gw := h.gateways[i]
		if err == nil {
			err = netlink.AddrAdd(eth0, alone(ip))
		}
		if err == nil {
			err = netlink.NeighSet(&netlink.Neigh{LinkIndex: eth0.Attrs().Index, IP: gw.AsSlice(), State: netlink.NUD_PERMANENT, HardwareAddr: hostMAC})
		}
		if err == nil {
			err = netlink.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Dst: single(gw), Scope: netlink.SCOPE_LINK})
		}
		if err == nil {
			err = netlink.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: gw.AsSlice()})
		}
	}
	return err
}

// network joins a machine to the host by a link; the host is its way to everywhere, and it the host's.
func (h *testHost) network() {
	h.t.Helper()
	h.outside, h.host, h.machine = h.sandbox("outside"), netip.MustParseAddr("192.168.77.1"), netip.MustParseAddr("192.168.77.2")
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "up0"
	h.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "down0"}))
	address := func(link netlink.Link, all ...string) error {
		for _, a := range all {
			addr, err := netlink.ParseAddr(a)
			if err != nil {
				return err
			}
			if addr.IP.To4() == nil {
				addr.Flags = unix.IFA_F_NODAD
			}
			if err := netlink.AddrAdd(link, addr); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(link)
	}
	up, err := netlink.LinkByName("up0")
	h.must(err)
	h.t.Cleanup(func() { h.must(netlink.LinkDel(up)) })
	down, err := netlink.LinkByName("down0")
	h.must(err)
	ns, err := os.Open(h.outside)
	h.must(err)
	defer ns.Close()
	h.must(netlink.LinkSetNsFd(down, int(ns.Fd())))
	h.must(address(up, "192.168.77.1/24", "fd77::1/64"))
	h.at(h.outside, func() error {
		down, err := netlink.LinkByName("down0")
		if err == nil {
			err = address(down, "192.168.77.2/24", "fd77::2/64")
		}
		for _, gw := range []string{"192.168.77.1", "fd77::1"} {
			if err == nil {
				err = netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(gw)})
			}
		}
		return err
	})
	for _, gw := range []string{"192.168.77.2", "fd77::2"} {
		h.must(netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(gw)}))
	}
}

// ownTable makes what of the network's own table services count on: nothing that is invalid comes from pods or goes to them, what leaves does so by an address of
// the host, and so does what the host asks at its loopback address.
func (h *testHost) ownTable() {
	h.t.Helper()
	conn, err := nftables.New()
	h.must(err)
	accept, mangle := nftables.ChainPolicyAccept, nftables.ChainPriorityMangle
	h.own = conn.AddTable(&nftables.Table{Name: testBridge, Family: nftables.TableFamilyINet})
	group := (podnet.Network{Name: testBridge}).PortGroup()
	rule := func(c *nftables.Chain, parts ...[]expr.Any) {
		r := &nftables.Rule{Table: h.own, Chain: c}
		for _, p := range parts {
			r.Exprs = append(r.Exprs, p...)
		}
		conn.AddRule(r)
	}
	base := func(name string, typ nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
		return conn.AddChain(&nftables.Chain{Name: name, Table: h.own, Type: typ, Hooknum: hook, Priority: priority, Policy: &accept})
	}
	in := base("invalid-in", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, mangle)
	rule(in, isInvalid(expr.CmpOpNeq), isGroup(expr.MetaKeyIIFGROUP, group), verdict(expr.VerdictDrop))
	out := base("invalid-out", nftables.ChainTypeFilter, nftables.ChainHookPostrouting, mangle)
	rule(out, isInvalid(expr.CmpOpNeq), isGroup(expr.MetaKeyOIFGROUP, group), verdict(expr.VerdictDrop))
	post := base("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)
	four := families[0]
	rule(post, four.isFamily(), four.match(four.src, netip.MustParsePrefix("127.0.0.0/8")), isGroup(expr.MetaKeyOIFGROUP, group), []expr.Any{
		&expr.Immediate{Register: 1, Data: h.gateways[0].AsSlice()},
		&expr.NAT{Type: expr.NATTypeSourceNAT, Family: uint32(four.proto), RegAddrMin: 1},
	})
	rule(post, isGroup(expr.MetaKeyOIFGROUP, group), verdict(expr.VerdictAccept))
	for i, r := range []netip.Prefix{pods4, pods6} {
		rule(post, families[i].isFamily(), families[i].match(families[i].src, r), []expr.Any{&expr.Masq{}})
	}
	h.must(conn.Flush())
	h.t.Cleanup(func() {
		conn.AddTable(h.own) // a test may have taken it away
		conn.DelTable(h.own)
		h.must(conn.Flush())
	})
}

// hostPort leads a port of all the host's addresses, of TCP and UDP, to a pod, as pods' host ports are.
func (h *testHost) hostPort(port uint16, ips []netip.Addr, to uint16) {
	h.t.Helper()
	conn, err := nftables.New()
	h.must(err)
	accept := nftables.ChainPolicyAccept
	for name, hook := range map[string]*nftables.ChainHook{"prerouting": nftables.ChainHookPrerouting, "output": nftables.ChainHookOutput} {
		c := conn.AddChain(&nftables.Chain{Name: name, Table: h.own, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: nftables.ChainPriorityNATDest, Policy: &accept})
		for i, f := range families {
			r := &nftables.Rule{Table: h.own, Chain: c, Exprs: append(f.isFamily(), isLocal(true)...)}
			r.Exprs = append(r.Exprs,
				&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: portBytes(port)[:2]},
				&expr.Immediate{Register: 1, Data: ips[i].AsSlice()}, &expr.Immediate{Register: 2, Data: portBytes(to)[:2]},
				&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.proto), RegAddrMin: 1, RegProtoMin: 2, Specified: true})
			conn.AddRule(r)
		}
	}
	h.must(conn.Flush())
}
