package bridge

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/lease"
	"monopod.dev/monopod/internal/network/links"
	"monopod.dev/monopod/internal/network/podnet"
	"monopod.dev/monopod/test/harness"
)

// known lists what is written down for good of neighbours, in the network namespace of the thread, at this interface or at all ("").
func (h *testHost) known(device string) (all []string) {
	h.t.Helper()
	index := 0
	if device != "" {
		link, err := netlink.LinkByName(device)
		h.must(err)
		index = link.Attrs().Index
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		entries, err := netlink.NeighList(index, family)
		h.must(err)
		for _, n := range entries {
			if n.State&netlink.NUD_NOARP == 0 { // those of the loopback interface, and of many
				all = append(all, fmt.Sprintf("%s at %s, state %#x", n.IP, n.HardwareAddr, n.State))
			}
		}
	}
	slices.Sort(all)
	return all
}

func forGood(of netip.Addr, mac net.HardwareAddr) string {
	return fmt.Sprintf("%s at %s, state %#x", of, mac, netlink.NUD_PERMANENT)
}

// ways lists the routes, but for the local ones, in the network namespace of the thread.
func (h *testHost) ways() (all []string) {
	h.t.Helper()
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rts, err := links.Routes(&netlink.Handle{}, family)
		h.must(err)
		for _, r := range rts {
			to := "default"
			if !links.IsDefault(r) {
				to = links.PrefixOf(r.Dst).String()
			}
			if r.Type == unix.RTN_MULTICAST || strings.HasPrefix(to, "ff00:") {
				continue
			}
			s := to
			if r.Type == unix.RTN_UNREACHABLE {
				s += " unreachable"
			}
			if r.Gw != nil {
				s += " by " + r.Gw.String()
			}
			if r.Src != nil {
				s += " as " + r.Src.String()
			}
			all = append(all, s)
		}
	}
	slices.Sort(all)
	return all
}

// A sandbox has its own addresses and a way to its gateway, and nobody else on its link. The host knows the way to it. Nobody asks anybody where somebody is.
func TestSandboxesAreRouted(t *testing.T) {
	h := newHost(t)
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: dualRanges}})
	path := h.sandbox("a")
	ips := h.connectPorts(b, "a", path)
	mac := links.MACOf(ips[0])
	end := lease.HostInterface("mpt0", "a")
	bridge, err := netlink.LinkByName("mpt0")
	h.must(err)
	for range 2 { // and once more, as it is
		want := []string{forGood(ips[0], mac), forGood(ips[1], mac)}
		slices.Sort(want)
		if got := h.known(end); !slices.Equal(got, want) {
			t.Errorf("the host knows %q, want %q", got, want)
		}
		want = []string{"10.201.0.0/24 unreachable", "10.201.0.2/32 as 10.201.0.1", "fd00:201::/64 unreachable", "fd00:201::2/128 as fd00:201::1"}
		if got := h.ways(); !slices.Equal(got, want) {
			t.Errorf("the host's routes are %q, want %q", got, want)
		}
		h.in(path, func() error {
			want := []string{forGood(gateway4, bridge.Attrs().HardwareAddr), forGood(gateway6, bridge.Attrs().HardwareAddr)}
			slices.Sort(want)
			if got := h.known(network.InterfaceName); !slices.Equal(got, want) {
				t.Errorf("the sandbox knows %q, want %q", got, want)
			}
			want = []string{"10.201.0.1/32", "default by 10.201.0.1", "default by fd00:201::1", "fd00:201::1/128"}
			if got := h.ways(); !slices.Equal(got, want) {
				t.Errorf("the sandbox's routes are %q, want %q", got, want)
			}
			return nil
		})
		h.connectPorts(b, "a", path)
	}
	h.must(b.Teardown(t.Context(), "a"))
	h.drop(path)
	h.must(b.Reconcile(t.Context(), nil))
	if got := h.known(""); len(got) != 0 {
		t.Errorf("the host still knows %q", got)
	}
	if got := h.ways(); len(got) != 2 {
		t.Errorf("the host's routes are %q", got)
	}
}

// Nobody is where no sandbox is: that is said at once, and nobody's table of neighbours grows by it.
func TestTheRestIsUnreachable(t *testing.T) {
	h := newHost(t)
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: dualRanges}})
	pod := h.sandbox("pod")
	h.connectPorts(b, "pod", pod)
	outside, host, _ := h.outside("192.168.77.0/30")
	h.route(outside, host)
	// Link-local neighbours, and those of the network outside, come and go by themselves.
	known := func() []string {
		return slices.DeleteFunc(h.known(""), func(s string) bool { return strings.HasPrefix(s, "192.168.77.") || strings.HasPrefix(s, "fe80::") })
	}
	before := known()
	for _, at := range []string{"10.201.0.99:80", "[fd00:201::99]:80"} {
		for _, from := range []string{"", pod} {
			if _, err := h.askWithin(from, at, time.Minute); !errors.Is(err, unix.EHOSTUNREACH) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.ENETUNREACH) {
				t.Errorf("%q asks %s: %v", from, at, err)
			}
		}
	}
	if _, err := h.askWithin(outside, "10.201.0.99:80", time.Minute); !errors.Is(err, unix.EHOSTUNREACH) {
		t.Errorf("from outside: %v", err)
	}
	h.in(pod, func() error {
		for i := range 250 {
			c, err := net.Dial("udp", fmt.Sprintf("10.201.0.%d:9", 2+i))
			if err != nil {
				return err
			}
			c.Write([]byte("anybody?")) // that it does not arrive is told to the next one
			c.Close()
		}
		return nil
	})
	if after := known(); !slices.Equal(after, before) {
		t.Errorf("the host knows %q, before %q", after, before)
	}
}

// What somebody takes away with the bridge comes back with it: the ways to the sandboxes, which keep their hardware addresses.
func TestRoutesAreMadeAnew(t *testing.T) {
	h := newHost(t)
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: dualRanges}})
	pod := h.sandbox("pod")
	ips := h.connectPorts(b, "pod", pod)
	h.serve(pod, "[::]:80")
	before := h.ways()
	link, err := netlink.LinkByName("mpt0")
	h.must(err)
	h.must(netlink.LinkDel(link))
	if slices.Equal(h.ways(), before) {
		t.Error("without the bridge there are all routes; this test tests nothing")
	}
	h.must(b.Status(t.Context()))
	if after := h.ways(); !slices.Equal(after, before) {
		t.Errorf("the routes are %q, before %q", after, before)
	}
	for _, ip := range ips {
		if _, err := h.tryAsk("", netip.AddrPortFrom(ip, 80).String()); err != nil {
			t.Errorf("the host asks %s: %v", ip, err)
		}
	}
}

// What somebody takes away of the routes is there again at once, without anybody asking.
func TestLostRoutesAreRepaired(t *testing.T) {
	h := newHost(t)
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: dualRanges}})
	for _, id := range []string{"one", "other"} {
		h.connectPorts(b, id, h.sandbox(id))
	}
	want := h.ways()
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rts, err := links.Routes(&netlink.Handle{}, family)
		h.must(err)
		for _, r := range rts {
			if r.Protocol == links.OwnRoutes {
				h.must(netlink.RouteDel(&r))
				harness.Eventually(t, "without "+r.String()+" all routes are there again", func() (bool, string) {
					got := h.ways()
					return slices.Equal(got, want), fmt.Sprint(got)
				})
			}
		}
	}
}

// asBefore makes of a sandbox's connection what the version before had: a port of the bridge, others on the link.
func (h *testHost) asBefore(b *Bridge, id, path string) {
	h.t.Helper()
	rec, ok := b.ledger.Get(ids.SandboxID(id))
	if !ok {
		h.t.Fatalf("%s has no addresses", id)
	}
	bridge, err := netlink.LinkByName(b.name)
	h.must(err)
	for _, a := range rec.Addresses {
		addr := &netlink.Addr{IPNet: links.IPNet(netip.PrefixFrom(a.Gateway, a.Address.Bits())), Flags: nodad(a.Gateway)}
		if a.Gateway.Is6() {
			if err := netlink.AddrDel(bridge, &netlink.Addr{IPNet: links.IPNet(links.HostPrefix(a.Gateway))}); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) { // as it was for the first
				h.must(err)
			}
		}
		h.must(netlink.AddrReplace(bridge, addr))
		route := &netlink.Route{Dst: links.IPNet(links.HostPrefix(a.Address.Addr())), Protocol: links.OwnRoutes}
		if a.Gateway.Is4() {
			route.Scope = netlink.SCOPE_LINK
		}
		if err := netlink.RouteDel(route); err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.ENOENT) {
			h.must(err)
		}
	}
	end, err := netlink.LinkByName(rec.Interface)
	h.must(err)
	h.must(netlink.LinkSetARPOn(end))
	h.must(netlink.LinkSetHardwareAddr(end, net.HardwareAddr{2, 0, 0, 0, 0, byte(len(id))}))
	h.must(netlink.LinkSetMaster(end, bridge))
	h.in(path, func() error {
		eth0, err := netlink.LinkByName(network.InterfaceName)
		if err != nil {
			return err
		}
		for _, a := range rec.Addresses {
			had := &netlink.Addr{IPNet: links.IPNet(links.HostPrefix(a.Address.Addr()))}
			has := &netlink.Addr{IPNet: links.IPNet(a.Address), Flags: nodad(a.Address.Addr())}
			if a.Gateway.Is6() {
				h.must(netlink.AddrDel(eth0, had))
				h.must(netlink.AddrAdd(eth0, has))
				continue
			}
			h.must(netlink.AddrAdd(eth0, has))
			h.must(netlink.AddrDel(eth0, had))
		}
		h.must(netlink.RouteDel(&netlink.Route{Dst: links.IPNet(links.HostPrefix(rec.Addresses[0].Gateway)), LinkIndex: eth0.Attrs().Index, Scope: netlink.SCOPE_LINK}))
		return nil
	})
}

// Sandboxes that the version before has connected go on as others, with the connections that they have.
func TestSandboxesOfTheBridgeAreTakenOver(t *testing.T) {
	h := newHost(t)
	cfg := Config{DB: h.openDB("state.db"), Network: podnet.Network{Name: "mpt0", Ranges: dualRanges}}
	b := h.bridge(cfg)
	paths := map[ids.SandboxID]string{"one": h.sandbox("one"), "other": h.sandbox("other")}
	ips := map[ids.SandboxID][]netip.Addr{}
	for id, path := range paths {
		ips[id] = h.connectPorts(b, string(id), path)
	}
	want := map[ids.SandboxID][]string{"": h.ways()}
	for id, path := range paths {
		h.in(path, func() error { want[id] = h.ways(); return nil })
	}
	h.unwatched(b)
	conn, err := nftables.New()
	h.must(err)
	conn.AddTable(&nftables.Table{Name: "mpt0", Family: nftables.TableFamilyBridge})
	conn.FlushRuleset()
	h.must(conn.Flush())
	conn.AddTable(&nftables.Table{Name: "mpt0", Family: nftables.TableFamilyBridge})
	h.must(conn.Flush())
	for id, path := range paths {
		h.asBefore(b, string(id), path)
	}
	// On the bridge they reach each other and the host.
	h.serve(paths["other"], "[::]:80")
	for _, from := range []string{"", paths["one"]} {
		if _, err := h.tryAsk(from, netip.AddrPortFrom(ips["other"][0], 80).String()); err != nil {
			t.Fatalf("as it was before, %q asks: %v", from, err)
		}
	}
	open := h.echo(paths["other"], ips["other"][0], paths["one"])

	b = h.bridge(cfg)
	h.must(b.Reconcile(t.Context(), paths))
	if got := h.ways(); !slices.Equal(got, want[""]) {
		t.Errorf("the host's routes are %q, want %q", got, want[""])
	}
	for id, path := range paths {
		h.in(path, func() error {
			if got := h.ways(); !slices.Equal(got, want[id]) {
				t.Errorf("the routes of %s are %q, want %q", id, got, want[id])
			}
			eth0, err := netlink.LinkByName(network.InterfaceName)
			h.must(err)
			addrs, err := netlink.AddrList(eth0, unix.AF_UNSPEC)
			if len(addrs) != 2 {
				t.Errorf("%s has the addresses %v", id, addrs)
			}
			return err
		})
		end, err := netlink.LinkByName(lease.HostInterface("mpt0", id))
		h.must(err)
		if a := end.Attrs(); a.MasterIndex != 0 || a.Group != (podnet.Network{Name: "mpt0"}).PortGroup() || a.RawFlags&unix.IFF_NOARP == 0 {
			t.Errorf("the host's end of %s: %+v", id, a)
		}
	}
	open()
	for from, path := range map[string]string{"the host": "", "one": paths["one"]} {
		for _, ip := range ips["other"] {
			if _, err := h.tryAsk(path, netip.AddrPortFrom(ip, 80).String()); err != nil {
				t.Errorf("%s asks %s: %v", from, ip, err)
			}
		}
	}
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyBridge)
	if err != nil || len(tables) != 0 {
		t.Errorf("tables of the bridge: %v, %v", tables, err)
	}
}

// echo opens a connection between two namespaces. What it returns fails unless it is open still, in both directions.
func (h *testHost) echo(server string, at netip.Addr, client string) (check func()) {
	h.t.Helper()
	var l net.Listener
	h.in(server, func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(at, 7).String())
		return err
	})
	h.t.Cleanup(func() { l.Close() })
	go func() {
		c, err := l.Accept()
		if err == nil {
			defer c.Close()
			io.Copy(c, c)
		}
	}()
	var c net.Conn
	h.in(client, func() (err error) {
		c, err = net.DialTimeout("tcp", netip.AddrPortFrom(at, 7).String(), time.Minute)
		return err
	})
	h.t.Cleanup(func() { c.Close() })
	check = func() {
		h.t.Helper()
		h.must(c.SetDeadline(time.Now().Add(time.Minute * harness.SlowFactor())))
		buf := make([]byte, 5)
		if _, err := c.Write([]byte("hello")); err != nil {
			h.t.Errorf("an open connection: %v", err)
		} else if _, err := io.ReadFull(c, buf); err != nil {
			h.t.Errorf("an open connection: %v", err)
		}
	}
	check()
	return check
}

func TestRangeOf(t *testing.T) {
	known := ranges("10.1.0.0/16", "fd00:1::/64")
	for _, c := range []struct{ have, gateway, want string }{
		{"10.1.2.3/32", "10.1.0.1", "10.1.0.0/16"},
		{"fd00:1::7/128", "fd00:1::1", "fd00:1::/64"},
		{"10.2.0.9/32", "10.2.0.1", "10.2.0.0/28"}, // of a range that is not known any more: the gateway is right, and all that is needed
		{"10.2.3.4/24", "10.9.0.1", "10.2.3.0/24"},
		{"fd00:2::12/128", "fd00:2::1", "fd00:2::/123"},
	} {
		if got := rangeOf(netip.MustParsePrefix(c.have), netip.MustParseAddr(c.gateway), known); got.String() != c.want {
			t.Errorf("%s with the gateway %s is of %s, want %s", c.have, c.gateway, got, c.want)
		}
	}
}
