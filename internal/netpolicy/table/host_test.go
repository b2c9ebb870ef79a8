package table

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/netpolicy/compile"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/state"
	"monopod.dev/monopod/test/harness"
)

const bridgeName = "mpt0"

// hostPort is the port of the host that leads to port 80 of a pod with the label app=web.
const hostPort = 8080

// testHost is a network namespace that plays the host, with a real bridge, pods in namespaces of their own, and a machine of its network.
type testHost struct {
	t      *testing.T
	dir    string
	bridge *network.Bridge
	table  *Table
	pods   []compile.Pod
}

func newHost(t *testing.T) *testHost {
	t.Helper()
	harness.NewNetwork(t)
	dir, err := os.MkdirTemp("/tmp", "mppol")
	if err != nil {
		t.Fatal(err)
	}
	h := &testHost{t: t, dir: dir}
	t.Cleanup(func() { h.must(tree.Remove(context.Background(), dir)) })
	db, _, err := state.Open(state.Config{Path: filepath.Join(dir, "db")})
	h.must(err)
	t.Cleanup(func() { h.must(db.Close()) })
	ranges := []netip.Prefix{netip.MustParsePrefix("10.97.0.0/24"), netip.MustParsePrefix("fd00:97::/64")}
	h.bridge, err = network.New(t.Context(), network.Config{DB: db, Bridge: bridgeName, PodCIDRs: ranges})
	h.must(err)
	h.must(h.bridge.Start(t.Context()))
	t.Cleanup(func() {
		h.must(h.bridge.Remove(context.WithoutCancel(t.Context())))
		h.bridge.Close()
	})
	h.table = h.open()
	t.Cleanup(func() {
		h.must(h.table.Remove())
		h.must(h.table.Remove()) // idempotent
		h.none()
		h.table.Close()
	})
	return h
}

func (h *testHost) open() *Table {
	h.t.Helper()
	t, err := Open(h.t.Context(), Config{Bridge: bridgeName, PortGroup: network.PortGroup(bridgeName)})
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

// pod connects a pod with a label app.
func (h *testHost) pod(namespace, app string, ports ...compile.NamedPort) *machine {
	h.t.Helper()
	m := &machine{h: h, name: fmt.Sprint(namespace, "-", app, len(h.pods)), path: filepath.Join(h.dir, fmt.Sprint("pod", len(h.pods)))}
	harness.PinNetNS(h.t, m.path)
	req := network.Request{SandboxID: m.name, NetNS: m.path}
	if app == "web" {
		req.HostPorts = []network.HostPort{{Protocol: "TCP", HostPort: hostPort, ContainerPort: 80}}
	}
	res, err := h.bridge.Setup(h.t.Context(), req)
	h.must(err)
	m.ip, m.ip6 = res.IPs[0], res.IPs[1]
	k := kindOf(namespace, app, ports...)
	h.pods = append(h.pods, compile.Pod{UID: m.name, Kind: k, Addresses: res.IPs, Local: true, Port: h.portOf(m)})
	return m
}

// portOf is the interface of the host that leads to a pod.
func (h *testHost) portOf(m *machine) string {
	h.t.Helper()
	var peer int
	h.must(harness.InNetNS(m.path, func() error {
		l, err := netlink.LinkByName("eth0")
		if err == nil {
			peer = l.Attrs().ParentIndex
		}
		return err
	}))
	l, err := netlink.LinkByIndex(peer)
	h.must(err)
	return l.Attrs().Name
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
	link, err := netlink.LinkByName(up)
	h.must(err)
	h.t.Cleanup(func() { h.must(netlink.LinkDel(link)) })
	add := func(l netlink.Link, cidr string) {
		a, err := netlink.ParseAddr(cidr)
		h.must(err)
		a.Flags = 2 // IFA_F_NODAD
		if a.IP.To4() != nil {
			a.Flags = 0
		}
		h.must(netlink.AddrAdd(l, a))
	}
	host4, host6 := netip.AddrFrom4([4]byte{198, 51, 100, byte(octet)}), netip.MustParseAddr(fmt.Sprintf("2001:db8:%x::1", octet))
	add(link, host4.String()+"/31")
	add(link, host6.String()+"/64")
	h.must(netlink.LinkSetUp(link))
	peer, err := netlink.LinkByName("down")
	h.must(err)
	ns, err := os.Open(m.path)
	h.must(err)
	defer ns.Close()
	h.must(netlink.LinkSetNsFd(peer, int(ns.Fd())))
	h.must(harness.InNetNS(m.path, func() error {
		peer, err := netlink.LinkByName("down")
		h.must(err)
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

// TestTheBridgesHardwareAddressIsFollowed: frames of isolated pods go to the bridge that is there, whichever address it has.
func TestTheBridgesHardwareAddressIsFollowed(t *testing.T) {
	h := newHost(t)
	h.must(h.table.Apply(&compile.Rules{}))
	link, err := netlink.LinkByName(bridgeName)
	h.must(err)
	mac := net.HardwareAddr{2, 0, 0, 1, 2, 3}
	h.must(netlink.LinkSetHardwareAddr(link, mac))
	harness.Eventually(t, "the tables have the new address", func() (bool, string) {
		h.table.mu.Lock()
		defer h.table.mu.Unlock()
		return h.table.mac.String() == mac.String(), h.table.mac.String()
	})
}

// TestNobodyIsBlamed: where events were lost but the tables are as they were written nothing is written, and nobody is said to have changed them.
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
