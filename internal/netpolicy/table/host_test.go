package table

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/netpolicy/compile"
	"monopod.dev/monopod/internal/network/podnet"
	"monopod.dev/monopod/test/harness"
)

const bridgeName = "mpt0"

var networks = podnet.Networks{{Name: bridgeName}}

// hostPort is the port of the host that leads to port 80 of the first pod.
const hostPort = 8080

// The addresses of the host on its pods' network, which is its name for their connections to themselves.
var gateways = [2]netip.Addr{netip.MustParseAddr("10.97.0.1"), netip.MustParseAddr("fd00:97::1")}

// testHost is a network namespace that plays the host, with pods in namespaces of their own, to each of which it has a route, and a machine of its network.
type testHost struct {
	t     *testing.T
	dir   string
	table *Table
	pods  []compile.Pod
}

func newHost(t *testing.T) *testHost {
	t.Helper()
	harness.NewNetwork(t)
	t.Cleanup(func() { harness.ClearNetwork(t) })
	dir, err := os.MkdirTemp("/tmp", "mppol")
	if err != nil {
		t.Fatal(err)
	}
	h := &testHost{t: t, dir: dir}
	t.Cleanup(func() { h.must(tree.Remove(context.Background(), dir)) })
	for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		h.must(os.WriteFile("/proc/sys/net/"+name, []byte("1"), 0))
	}
	home := netlink.NewLinkAttrs()
	home.Name = bridgeName
	h.must(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: home}))
	link := h.link(bridgeName)
	for _, gw := range gateways {
		h.address(link, netip.PrefixFrom(gw, gw.BitLen()))
	}
	h.must(netlink.LinkSetUp(link))
	h.table = h.open()
	t.Cleanup(func() {
		h.must(h.table.Remove())
		h.must(h.table.Remove()) // idempotent
		h.none()
		h.table.Close()
	})
	return h
}

// link is one of the calling thread's namespace.
func (h *testHost) link(name string) netlink.Link {
	h.t.Helper()
	l, err := netlink.LinkByName(name)
	h.must(err)
	return l
}

func (h *testHost) address(l netlink.Link, p netip.Prefix) {
	h.t.Helper()
	a := &netlink.Addr{IPNet: ipNet(p)}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	h.must(netlink.AddrAdd(l, a))
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func whole(a netip.Addr) *net.IPNet { return ipNet(netip.PrefixFrom(a, a.BitLen())) }

// hostPorts has the host lead hostPort of each of its addresses to port 80 of the first pod. A pod that reaches itself so gets to see the host.
func (h *testHost) hostPorts() {
	h.t.Helper()
	conn, err := nftables.New()
	h.must(err)
	table := conn.AddTable(&nftables.Table{Name: "hostports", Family: nftables.TableFamilyIPv4})
	chain := func(name string, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
		return conn.AddChain(&nftables.Chain{Name: name, Table: table, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: priority})
	}
	rule := func(c *nftables.Chain, parts ...[]expr.Any) {
		conn.AddRule(&nftables.Rule{Table: table, Chain: c, Exprs: slices.Concat(parts...)})
	}
	load := func(register uint32, data []byte) []expr.Any {
		return []expr.Any{&expr.Immediate{Register: register, Data: data}}
	}
	first := podAddresses(0)[0]
	web, fam := first.AsSlice(), families[0]
	rule(chain("in", nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest),
		[]expr.Any{&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true}, &expr.Cmp{Register: 1, Data: []byte(number(uint32(unix.RTN_LOCAL)))}},
		meta(expr.MetaKeyL4PROTO, unix.IPPROTO_TCP), field(expr.PayloadBaseTransportHeader, 2, hostPort>>8, hostPort&0xff),
		load(1, web), load(2, []byte{0, 80}), []expr.Any{&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(fam.proto), RegAddrMin: 1, RegProtoMin: 2}})
	rule(chain("out", nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource),
		field(expr.PayloadBaseNetworkHeader, fam.src, web...), field(expr.PayloadBaseNetworkHeader, fam.dst, web...),
		load(1, gateways[0].AsSlice()), []expr.Any{&expr.NAT{Type: expr.NATTypeSourceNAT, Family: uint32(fam.proto), RegAddrMin: 1}})
	h.must(conn.Flush())
}

func (h *testHost) open() *Table {
	h.t.Helper()
	t, err := Open(h.t.Context(), Config{Networks: networks})
	h.must(err)
	return t
}

func (h *testHost) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// none says that no table of policies is there.
func (h *testHost) none() {
	h.t.Helper()
	for _, t := range h.tables() {
		if t.Name == h.table.cfg.Name() {
			h.t.Errorf("the table %s is left", t.Name)
		}
	}
}

func (h *testHost) tables() []*nftables.Table {
	h.t.Helper()
	conn, err := nftables.New()
	h.must(err)
	all, err := conn.ListTables()
	h.must(err)
	return all
}

// machine is somebody with a network namespace and addresses.
type machine struct {
	h    *testHost
	name string
	path string
	ip   netip.Addr
	ip6  netip.Addr
}

func podAddresses(i int) []netip.Addr {
	return []netip.Addr{netip.AddrFrom4([4]byte{10, 97, 0, byte(i + 2)}), netip.MustParseAddr(fmt.Sprintf("fd00:97::%x", i+2))}
}

// pod connects a pod with a label app: the host has a route to it, and it one to the host, by a pair of interfaces that need not ask each other for hardware addresses.
func (h *testHost) pod(namespace, app string, ports ...compile.NamedPort) *machine {
	h.t.Helper()
	i := len(h.pods)
	m := &machine{h: h, name: fmt.Sprint(namespace, "-", app, i), path: filepath.Join(h.dir, fmt.Sprint("pod", i))}
	harness.PinNetNS(h.t, m.path)
	ips := podAddresses(i)
	m.ip, m.ip6 = ips[0], ips[1]
	here, there := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 1, byte(i)}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Group, attrs.HardwareAddr = fmt.Sprint("mp", i), networks[0].PortGroup(), here
	ns, err := os.Open(m.path)
	h.must(err)
	defer ns.Close()
	h.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerHardwareAddr: there, PeerNamespace: netlink.NsFd(ns.Fd())}))
	port := h.link(attrs.Name)
	h.must(netlink.LinkSetARPOff(port))
	h.must(netlink.LinkSetUp(port))
	h.must(harness.InNetNS(m.path, func() error {
		h.must(netlink.LinkSetUp(h.link("lo")))
		eth0 := h.link("eth0")
		for f, ip := range ips {
			h.address(eth0, netip.PrefixFrom(ip, ip.BitLen()))
			h.neighbour(eth0, gateways[f], here)
		}
		h.must(netlink.LinkSetUp(eth0))
		for _, gw := range gateways {
			h.must(netlink.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Dst: whole(gw), Scope: netlink.SCOPE_LINK}))
			h.must(netlink.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: gw.AsSlice()}))
		}
		return nil
	}))
	for f, ip := range ips {
		h.neighbour(port, ip, there)
		h.must(netlink.RouteAdd(&netlink.Route{LinkIndex: port.Attrs().Index, Dst: whole(ip), Src: gateways[f].AsSlice(), Scope: netlink.SCOPE_LINK}))
	}
	h.pods = append(h.pods, compile.Pod{Key: m.name, Kind: kindOf(namespace, app, ports...), Addresses: ips, Local: true})
	return m
}

func (h *testHost) neighbour(l netlink.Link, ip netip.Addr, mac net.HardwareAddr) {
	h.t.Helper()
	h.must(netlink.NeighAdd(&netlink.Neigh{LinkIndex: l.Attrs().Index, IP: ip.AsSlice(), HardwareAddr: mac, State: netlink.NUD_PERMANENT}))
}

// outside joins a machine to the host by a link of its own, which has the host as its router.
func (h *testHost) outside(octet int) *machine {
	h.t.Helper()
	m := &machine{h: h, name: fmt.Sprint("outside", octet), path: filepath.Join(h.dir, fmt.Sprint("outside", octet)),
		ip: netip.AddrFrom4([4]byte{198, 51, 100, byte(octet + 1)}), ip6: netip.MustParseAddr(fmt.Sprintf("2001:db8:%x::2", octet))}
	harness.PinNetNS(h.t, m.path)
	up := fmt.Sprint("up", octet)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = up
	h.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "down"}))
	link := h.link(up)
	add := func(l netlink.Link, cidr string) { h.address(l, netip.MustParsePrefix(cidr)) }
	host4, host6 := netip.AddrFrom4([4]byte{198, 51, 100, byte(octet)}), netip.MustParseAddr(fmt.Sprintf("2001:db8:%x::1", octet))
	add(link, host4.String()+"/31")
	add(link, host6.String()+"/64")
	h.must(netlink.LinkSetUp(link))
	peer := h.link("down")
	ns, err := os.Open(m.path)
	h.must(err)
	defer ns.Close()
	h.must(netlink.LinkSetNsFd(peer, int(ns.Fd())))
	h.must(harness.InNetNS(m.path, func() error {
		peer := h.link("down")
		add(peer, m.ip.String()+"/31")
		add(peer, m.ip6.String()+"/64")
		h.must(netlink.LinkSetUp(peer))
		for _, gw := range []netip.Addr{host4, host6} {
			h.must(netlink.RouteAdd(&netlink.Route{Gw: gw.AsSlice()}))
		}
		return nil
	}))
	return m
}

// serve answers each connection, and each datagram, at a port of a machine with the address that it comes from.
func (m *machine) serve(port int) {
	m.h.t.Helper()
	var l net.Listener
	var p net.PacketConn
	m.at(func() (err error) {
		if l, err = net.Listen("tcp", fmt.Sprint(":", port)); err != nil {
			return err
		}
		p, err = net.ListenPacket("udp", fmt.Sprint(":", port))
		return err
	})
	harness.EchoAddress(m.h.t, l)
	go func() {
		buf := make([]byte, 100)
		for {
			_, from, err := p.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = p.WriteTo([]byte("here"), from)
		}
	}()
	m.h.t.Cleanup(func() { p.Close() })
}

func (m *machine) at(f func() error) {
	m.h.t.Helper()
	if m.path == "" {
		m.h.must(f())
		return
	}
	m.h.must(harness.InNetNS(m.path, f))
}

// dial connects to an address, and reads what comes.
func (m *machine) dial(protocol string, to netip.AddrPort, limit time.Duration) (err error) {
	m.h.t.Helper()
	m.at(func() error {
		var c net.Conn
		end := time.Now().Add(limit)
		if c, err = (&net.Dialer{Deadline: end}).Dial(protocol, to.String()); err != nil {
			return nil
		}
		defer c.Close()
		if protocol == "udp" {
			if _, err = c.Write([]byte("?")); err != nil {
				return nil
			}
		}
		if err = c.SetDeadline(end); err != nil {
			return nil
		}
		_, err = c.Read(make([]byte, 100))
		return nil
	})
	return err
}

// dialHere connects from the namespace of the thread.
func dialHere(to netip.AddrPort) error {
	c, err := net.DialTimeout("tcp", to.String(), 60*time.Second)
	if err == nil {
		_, err = c.Read(make([]byte, 100))
		c.Close()
	}
	return err
}

// talk opens a conversation by datagrams, which goes on until the test ends: it says whether there is an answer now.
func (m *machine) talk(to netip.Addr, port uint16) func() bool {
	m.h.t.Helper()
	var c net.Conn
	m.at(func() (err error) {
		c, err = net.Dial("udp", netip.AddrPortFrom(to, port).String())
		return err
	})
	m.h.t.Cleanup(func() { c.Close() })
	return func() bool {
		m.h.must(c.SetDeadline(time.Now().Add(quiet * harness.SlowFactor())))
		_, _ = c.Write([]byte("?"))
		n, _ := c.Read(make([]byte, 100))
		return n > 0
	}
}

const quiet = 300 * time.Millisecond

// reaches requires that a connection gets through.
func (m *machine) reaches(protocol string, to netip.Addr, port uint16) {
	m.h.t.Helper()
	if err := m.dial(protocol, netip.AddrPortFrom(to, port), 60*time.Second); err != nil {
		m.h.t.Errorf("%s does not reach %s %s:%d: %v", m.name, protocol, to, port, err)
	}
}

// misses requires that it does not. What is dropped has no other sign than that nothing comes.
func (m *machine) misses(protocol string, to netip.Addr, port uint16) {
	m.h.t.Helper()
	if err := m.dial(protocol, netip.AddrPortFrom(to, port), quiet*harness.SlowFactor()); err == nil {
		m.h.t.Errorf("%s reaches %s %s:%d", m.name, protocol, to, port)
	}
}

// redirected is how many ICMP redirects have come to a machine.
func (m *machine) redirected() (n int) {
	m.h.t.Helper()
	m.at(func() error {
		raw, err := os.ReadFile("/proc/thread-self/net/snmp")
		if err != nil {
			return err
		}
		var names []string
		for line := range strings.Lines(string(raw)) {
			switch at := slices.Index(names, "InRedirects"); {
			case !strings.HasPrefix(line, "Icmp:"):
			case names == nil:
				names = strings.Fields(line)
			default:
				n, err = strconv.Atoi(strings.Fields(line)[at])
			}
		}
		return err
	})
	return n
}

// TestNobodyIsBlamed: where events were lost but the table is as it was written nothing is written, and nobody is said to have changed it.
func TestNobodyIsBlamed(t *testing.T) {
	h := newHost(t)
	db := h.pod("shop", "db")
	h.pod("shop", "web")
	c := compile.New()
	c.Learn([]*networkingv1.NetworkPolicy{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "one"}, Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}, {IPBlock: &networkingv1.IPBlock{CIDR: "192.0.2.0/24"}}},
			Ports: []networkingv1.NetworkPolicyPort{{Port: &intstr.IntOrString{IntVal: 80}, EndPort: ptr.To(int32(90))}}}}}}}, []compile.Namespace{{Name: "shop"}})
	r := c.Compile(h.pods)
	h.must(h.table.Apply(&r))
	for _, what := range []string{"nothing", "an element", "a rule"} {
		conn, err := nftables.New()
		h.must(err)
		of := &nftables.Table{Name: h.table.cfg.Name(), Family: nftables.TableFamilyINet}
		h.table.watcher.SetActive(false) // the test is what tells of the loss
		switch what {
		case "an element":
			set, err := conn.GetSetByName(of, podsSet(0, db.ip))
			h.must(err)
			has, err := conn.GetSetElements(set)
			h.must(err)
			h.must(conn.SetDeleteElements(set, has[:1]))
		case "a rule":
			chain := &nftables.Chain{Name: forwardChain, Table: of}
			rules, err := conn.GetRules(of, chain)
			h.must(err)
			h.must(conn.DelRule(rules[0]))
		}
		h.must(conn.Flush())
		if repaired := h.table.repair(t.Context()); repaired != (what != "nothing") {
			t.Errorf("%s was changed: repaired %v", what, repaired)
		}
	}
	h.table.watcher.SetActive(true)
}
