package bridge

import (
	"net/netip"
	"os"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"

	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/links"
	"monopod.dev/monopod/internal/network/podnet"
	"monopod.dev/monopod/test/harness"
)

// router is a host with two networks beside the pods' one, in both families.
type router struct {
	*testHost
	a, b         string // machines of the networks
	to4, to6     string // what b serves
	hostA, hostB netip.Addr
}

func newRouter(t *testing.T) *router {
	h := &router{testHost: newHost(t)}
	var b4 netip.Addr
	h.a, h.hostA, _ = h.network("a", "192.168.77.0/30")
	h.b, h.hostB, b4 = h.network("b", "192.168.78.0/30")
	h.route(h.a, h.hostA)
	h.route(h.b, h.hostB)
	for path, n := range map[string]struct{ link, cidr string }{h.a: {"a", "fd00:77::/126"}, h.b: {"b", "fd00:78::/126"}} {
		prefix := netip.MustParsePrefix(n.cidr)
		host := prefix.Addr().Next()
		for at, c := range map[string]struct {
			link string
			ip   netip.Addr
		}{"": {"up" + n.link, host}, path: {"down" + n.link, host.Next()}} {
			h.at(at, func() error {
				link, err := netlink.LinkByName(c.link)
				if err != nil {
					return err
				}
				return netlink.AddrAdd(link, &netlink.Addr{IPNet: links.IPNet(netip.PrefixFrom(c.ip, prefix.Bits())), Flags: nodad(c.ip)})
			})
		}
		h.route(path, host)
	}
	h.to4, h.to6 = b4.String()+":80", "[fd00:78::2]:80"
	h.serve(h.b, h.to4)
	h.serve(h.b, h.to6)
	return h
}

// routes says whether the host is a router between its other networks.
func (h *router) routes(when string, want4, want6 bool) {
	h.t.Helper()
	for to, want := range map[string]bool{h.to4: want4, h.to6: want6} {
		if _, err := h.tryAskIf(want, h.a, to); (err == nil) != want {
			h.t.Errorf("%s: from the other network to %s: %v, want an answer %v", when, to, err, want)
		}
	}
}

// tryAskIf waits as long for an answer as one is wanted.
func (h *testHost) tryAskIf(want bool, path, to string) (netip.Addr, error) {
	h.t.Helper()
	if want {
		return h.tryAsk(path, to)
	}
	if h.silent(path, to) {
		return netip.Addr{}, os.ErrDeadlineExceeded
	}
	return netip.Addr{}, nil
}

// Forwarding that the node has switched on is for its pods: the host is no router between its other networks, over restarts
// and kills too; pods and their host ports are reached from everywhere.
func TestForwardingIsForPods(t *testing.T) {
	h := newRouter(t)
	h.routes("before there is a node", false, false)
	cfg := Config{DB: h.openDB("state.db"), Network: podnet.Network{Name: "mpt0", Ranges: dualRanges}}
	b := h.bridge(cfg)
	pod := h.sandbox("pod")
	h.connectPorts(b, "pod", pod, network.HostPort{Protocol: "TCP", HostPort: 8080, ContainerPort: 80})
	h.serve(pod, "10.201.0.2:80")
	h.serve(pod, "[fd00:201::2]:80")
	pods := func(when string) {
		t.Helper()
		for _, c := range [][2]string{{pod, h.to4}, {pod, h.to6}, {h.a, "192.168.77.1:8080"}, {h.a, "[fd00:77::1]:8080"}, {h.a, "10.201.0.2:80"}, {h.a, "[fd00:201::2]:80"}} {
			if _, err := h.tryAsk(c[0], c[1]); err != nil {
				t.Errorf("%s: to %s: %v", when, c[1], err)
			}
		}
	}
	h.routes("with pods", false, false)
	pods("at first")
	h.bridge(cfg)
	h.routes("after a restart", false, false)
	pods("after a restart")

	// Who asks for it gets a router.
	cfg.NoForwardGuard = true
	h.bridge(cfg)
	h.routes("as configured", true, true)
	cfg.NoForwardGuard = false
	b = h.bridge(cfg)
	h.routes("as configured again", false, false)
	// CNI's pods are others, and need it.
	h.must(b.ShareForwarding(t.Context()))
	h.must(b.ShareForwarding(t.Context()))
	h.routes("shared", true, true)
	pods("shared")
}

// What the administrator has switched on is his: before the node came, by family, or at a later boot.
func TestForwardingOfTheAdministrator(t *testing.T) {
	h := newRouter(t)
	h.must(os.WriteFile(links.IPForwardFile, []byte("1\n"), 0))
	cfg := Config{DB: h.openDB("state.db"), Network: podnet.Network{Name: "mpt0", Ranges: dualRanges}}
	b := h.bridge(cfg)
	h.routes("IPv4 was on", true, false)
	h.must(b.Remove(t.Context()))
	h.routes("IPv4 was on, and the node is removed", true, false)

	h.must(os.WriteFile(links.IPForwardFile, []byte("0\n"), 0))
	b = h.bridge(cfg)
	h.routes("nothing was on", false, false)
	note, err := b.host.notes.get()
	h.must(err)
	note.Boot = "an earlier one"
	h.must(b.host.notes.table.Put(b.name, note))
	b = h.bridge(cfg)
	h.routes("both are on since the host has booted", true, true)
	h.must(b.Remove(t.Context()))
	h.routes("both are on since the host has booted, and the node is removed", true, true)
	for _, file := range []string{links.IPForwardFile, links.IP6ForwardFile} {
		h.must(os.WriteFile(file, []byte("0\n"), 0))
	}
}

// Others that translate addresses need forwarding: the guard follows them, without anybody asking for Status.
func TestForwardingOfOthers(t *testing.T) {
	h := newRouter(t)
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: dualRanges}})
	h.bridge(Config{Network: podnet.Network{Name: "mpt1", Ranges: ranges("10.202.0.0/24")}}) // another node is not such a one
	h.must(b.Status(t.Context()))
	h.routes("two nodes", false, false)
	conn, err := nftables.New()
	h.must(err)
	table := conn.AddTable(&nftables.Table{Name: "nat", Family: nftables.TableFamilyIPv4})
	chain := conn.AddChain(&nftables.Chain{Name: "POSTROUTING", Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource})
	h.must(conn.Flush())
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{&expr.Counter{}, &expr.Masq{}}})
	h.must(conn.Flush())
	h.eventuallyRoutes(true)
	conn.DelTable(table)
	h.must(conn.Flush())
	h.eventuallyRoutes(false)
}

func (h *router) eventuallyRoutes(want bool) {
	h.t.Helper()
	harness.Eventually(h.t, "the host is a router, or none", func() (bool, string) {
		_, err := h.tryAskIf(want, h.a, h.to4)
		return (err == nil) == want, "an answer, or none"
	})
}

// A node that is killed around the switch knows afterwards who has turned it.
func TestKilledAroundForwarding(t *testing.T) {
	h := newRouter(t)
	for _, point := range []string{"network/forwarding/noted", "network/forwarding/on"} {
		name := "state-" + point[len(point)-2:] + ".db"
		h.killed(crashJob{DB: h.dir + "/" + name, Op: "start"}, point)
		b := h.bridge(Config{DB: h.openDB(name), Network: podnet.Network{Name: "mpt0", Ranges: dualRanges}})
		h.routes("killed at "+point, false, false)
		h.must(b.Remove(t.Context()))
		for _, file := range []string{links.IPForwardFile, links.IP6ForwardFile} {
			if on, err := links.Forwards(file); err != nil || on {
				t.Errorf("killed at %s: %s is %v after Remove, %v", point, file, on, err)
			}
		}
	}
}

// Frames within a bridge of somebody else are not forwarded packets, also where the host shows them to its firewall.
func TestForwardGuardLetsOtherBridgesBe(t *testing.T) {
	h := newHost(t)
	h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: dualRanges}})
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "virbr"
	h.must(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}))
	bridge, err := netlink.LinkByName("virbr")
	h.must(err)
	t.Cleanup(func() { h.must(netlink.LinkDel(bridge)) })
	h.must(netlink.LinkSetUp(bridge))
	var paths []string
	for i, cidr := range []string{"192.168.79.0/30", "192.168.79.8/30"} {
		path, _, _ := h.network([]string{"x", "y"}[i], cidr)
		paths = append(paths, path)
		link, err := netlink.LinkByName([]string{"upx", "upy"}[i])
		h.must(err)
		addrs, err := netlink.AddrList(link, netlink.FAMILY_V4)
		h.must(err)
		h.must(netlink.AddrDel(link, &addrs[0]))
		h.must(netlink.LinkSetMaster(link, bridge))
	}
	h.serve(paths[0], "192.168.79.2:80")
	h.in(paths[1], func() error {
		link, err := netlink.LinkByName("downy")
		if err != nil {
			return err
		}
		addr, err := netlink.ParseAddr("192.168.79.1/30")
		if err != nil {
			return err
		}
		return netlink.AddrAdd(link, addr)
	})
	if _, err := h.tryAsk(paths[1], "192.168.79.2:80"); err != nil {
		t.Errorf("within another bridge: %v", err)
	}
}

// The tables of a node's own services, and of another node's, are no reason to forward for everybody.
func TestServicesAreNoReasonToForward(t *testing.T) {
	h := newHost(t)
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: testRanges}})
	h.bridge(Config{Network: podnet.Network{Name: "mpt1", Ranges: []netip.Prefix{netip.MustParsePrefix("10.89.0.0/24")}}})
	conn, err := nftables.New()
	h.must(err)
	for _, bridge := range []string{"mpt0", "mpt1"} {
		table := conn.AddTable(&nftables.Table{Name: (podnet.Network{Name: bridge}).ServicesTable(), Family: nftables.TableFamilyINet})
		t.Cleanup(func() {
			conn.DelTable(table)
			h.must(conn.Flush())
		})
		chain := conn.AddChain(&nftables.Chain{Name: "postrouting", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource})
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{&expr.Masq{}}})
	}
	h.must(conn.Flush())
	needed, err := b.rules.OthersForward(false)
	h.must(err)
	if needed {
		t.Error("the host forwards for everybody")
	}
}
