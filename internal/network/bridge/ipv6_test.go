package bridge

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/lease"
	"monopod.dev/monopod/internal/network/links"
	"monopod.dev/monopod/internal/network/podnet"
	"monopod.dev/monopod/internal/state"
)

var dualRanges = ranges("10.201.0.0/24", "fd00:201::/64")

func TestTwoFamilies(t *testing.T) {
	h := newHost(t)
	outside, host, machine := h.outside("fd00:77::/126")
	h.serve(outside, "[::]:80")
	refuse := h.forwardPolicyDrop()
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: dualRanges}})
	one, two := h.sandbox("one"), h.sandbox("two")
	ips := h.connectPorts(b, "one", one, network.HostPort{Protocol: "TCP", HostPort: 8080, ContainerPort: 80}, network.HostPort{Protocol: "TCP", HostIP: host, HostPort: 8081, ContainerPort: 80})
	if len(ips) != 2 || ips[0].String() != "10.201.0.2" || ips[1].String() != "fd00:201::2" {
		t.Fatalf("addresses %v", ips)
	}
	other := h.connectPorts(b, "two", two)
	h.serve(one, ":80")
	gateway := netip.MustParseAddr("fd00:201::1")
	for _, c := range []struct {
		name, from, to string
		seen           netip.Addr
	}{
		{"from pod to pod", two, "[fd00:201::2]:80", other[1]},
		{"from pod to pod, IPv4", two, "10.201.0.2:80", other[0]},
		{"from the host to a pod", "", "[fd00:201::2]:80", gateway},
		{"from a pod to the outside", one, "[" + machine.String() + "]:80", host},
		{"the host's port, from outside", outside, "[" + host.String() + "]:8080", machine},
		{"the host's port at one address, from outside", outside, "[" + host.String() + "]:8081", machine},
		{"the host's port, from the host", "", "[" + host.String() + "]:8080", host},
		{"the host's port, from another pod", two, "[" + host.String() + "]:8080", gateway},
		{"the host's port, from the pod itself", one, "[" + host.String() + "]:8080", gateway},
		{"the host's port, at the gateway", two, "[" + gateway.String() + "]:8080", gateway},
		{"the host's port, IPv4 loopback", "", "127.0.0.1:8080", netip.MustParseAddr("10.201.0.1")},
	} {
		if seen, err := h.tryAsk(c.from, c.to); err != nil || seen != c.seen {
			t.Errorf("%s: seen as %s (%v), want %s", c.name, seen, err, c.seen)
		}
	}
	h.in(one, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		addrs, err := netlink.AddrList(link, unix.AF_INET6)
		if err != nil || len(addrs) != 1 || addrs[0].Flags&unix.IFA_F_TENTATIVE != 0 {
			t.Errorf("IPv6 addresses %v, %v", addrs, err)
		}
		raw, err := os.ReadFile(filepath.Join(links.IP6Conf, "eth0", "accept_ra"))
		if strings.TrimSpace(string(raw)) != "0" {
			t.Errorf("router advertisements are accepted: %q, %v", raw, err)
		}
		return nil
	})
	h.must(b.Remove(t.Context()))
	if n := refuse(); n != 1 {
		t.Errorf("%d rules in the foreign chain after Remove, not 1", n)
	}
}

// forwardPolicyDrop makes another engine's IPv6 chain, that drops what it does not know. It returns how to count its rules.
func (h *testHost) forwardPolicyDrop() (rules func() int) {
	conn, err := nftables.New()
	h.must(err)
	table := conn.AddTable(&nftables.Table{Name: "filter", Family: nftables.TableFamilyIPv6})
	drop := nftables.ChainPolicyDrop
	chain := conn.AddChain(&nftables.Chain{Name: "FORWARD", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter, Policy: &drop})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictReturn}}})
	h.must(conn.Flush())
	h.t.Cleanup(func() {
		conn.DelTable(table)
		h.must(conn.Flush())
	})
	return func() int {
		all, err := conn.GetRules(table, chain)
		h.must(err)
		return len(all)
	}
}

// A chain that ends with a rule which refuses the rest (firewalld) is opened like one that drops by policy.
func TestForwardChainThatRejectsTheRest(t *testing.T) {
	h := newHost(t)
	outside, host, machine := h.outside("192.168.77.0/30")
	h.serve(outside, "0.0.0.0:80")
	conn, err := nftables.New()
	h.must(err)
	table := conn.AddTable(&nftables.Table{Name: "firewalld", Family: nftables.TableFamilyINet})
	accept := nftables.ChainPolicyAccept
	chain := conn.AddChain(&nftables.Chain{Name: "filter_FORWARD", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter, Policy: &accept})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{&expr.Counter{},
		&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED}}})
	h.must(conn.Flush())
	t.Cleanup(func() {
		conn.DelTable(table)
		h.must(conn.Flush())
	})
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: testRanges}})
	one := h.sandbox("one")
	h.setup(b, "one", one)
	if seen, err := h.tryAsk(one, machine.String()+":80"); err != nil || seen != host {
		t.Errorf("seen as %s, %v", seen, err)
	}
	// A reload of the other firewall takes our rules away; the next Status brings them back, if the watcher has not.
	h.unwatched(b)
	conn.FlushChain(chain)
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}})
	h.must(conn.Flush())
	if !h.silent(one, machine.String()+":80") {
		t.Error("the other firewall's reload changes nothing; this test tests nothing")
	}
	h.must(b.Status(t.Context()))
	if seen, err := h.tryAsk(one, machine.String()+":80"); err != nil || seen != host {
		t.Errorf("after a reload of the other firewall: seen as %s, %v", seen, err)
	}
}

func TestIPv6Only(t *testing.T) {
	h := newHost(t)
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: ranges("fd00:201::/64")}})
	one, two := h.sandbox("one"), h.sandbox("two")
	res, err := b.Setup(t.Context(), network.Request{SandboxID: "one", NetNS: one})
	if err != nil || len(res.IPs) != 1 || res.IPs[0].String() != "fd00:201::2" || res.Gateway.String() != "fd00:201::1" {
		t.Fatalf("%+v, %v", res, err)
	}
	h.connectPorts(b, "two", two)
	h.serve(one, "[::]:80")
	if seen := h.ask(two, "[fd00:201::2]:80"); seen.String() != "fd00:201::3" {
		t.Errorf("seen as %s", seen)
	}
	on, err := links.Forwards(links.IPForwardFile)
	if on || err != nil {
		t.Errorf("IPv4 forwarding is on (%v)", err)
	}
	// A pod that switches IPv6 off has no address then.
	off := h.sandbox("off")
	h.in(off, func() error {
		return os.WriteFile(filepath.Join(links.IP6Conf, "default", "disable_ipv6"), []byte("1"), 0)
	})
	if _, err := b.Setup(t.Context(), network.Request{SandboxID: "off", NetNS: off}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a pod without IPv6: %v", err)
	}
}

// A pod whose sysctls switch IPv6 off has its IPv4 address only.
func TestPodWithoutIPv6(t *testing.T) {
	h := newHost(t)
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: dualRanges}})
	pod := h.sandbox("pod")
	h.in(pod, func() error { return os.WriteFile(filepath.Join(links.IP6Conf, "all", "disable_ipv6"), []byte("1"), 0) })
	for range 2 {
		if ips := h.connectPorts(b, "pod", pod); len(ips) != 1 || ips[0].String() != "10.201.0.2" {
			t.Errorf("addresses %v", ips)
		}
	}
}

// By default there are both families where the host has both, in a range that stays the same.
func TestDefaultRanges(t *testing.T) {
	h := newHost(t)
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0"}})
	first := b.ledger.Ranges()
	if len(first) != 2 || first[0] != lease.DefaultIPv4 || first[1] != lease.UniqueLocal(machineID(), "mpt0") {
		t.Errorf("ranges %v", first)
	}
	h.must(b.Remove(t.Context()))
	h.must(os.WriteFile(filepath.Join(links.IP6Conf, "all", "disable_ipv6"), []byte("1"), 0))
	defer os.WriteFile(filepath.Join(links.IP6Conf, "all", "disable_ipv6"), []byte("0"), 0)
	only := h.bridge(Config{Network: podnet.Network{Name: "mpt1"}, DB: h.openDB("only.db")})
	if r := only.ledger.Ranges(); len(r) != 1 || r[0] != lease.DefaultIPv4 {
		t.Errorf("ranges of a host without IPv6 %v", r)
	}
	_, err := New(t.Context(), Config{Network: podnet.Network{Name: "mpt2", Ranges: dualRanges}, DB: h.openDB("x.db")})
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "disable_ipv6") {
		t.Errorf("an IPv6 range on a host without IPv6: %v", err)
	}
	h.must(only.Remove(t.Context()))
}

// The host's own default route by router advertisements stays when forwarding is switched on.
func TestForwardingKeepsTheHostsRoutes(t *testing.T) {
	h := newHost(t)
	h.outside("fd00:77::/126")
	read := func(name string) string {
		raw, err := os.ReadFile(filepath.Join(links.IP6Conf, name, "accept_ra"))
		h.must(err)
		return strings.TrimSpace(string(raw))
	}
	if read("up0") != "1" {
		t.Skipf("accept_ra of a new interface is %s here", read("up0"))
	}
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: dualRanges}})
	if got := read("up0"); got != "2" {
		t.Errorf("accept_ra is %s while the host forwards", got)
	}
	if got := read("mpt0"); got != "0" {
		t.Errorf("accept_ra of the bridge is %s", got)
	}
	h.must(b.Remove(t.Context()))
	if got := read("up0"); got != "1" {
		t.Errorf("accept_ra is %s after Remove", got)
	}
}

// A node that ran with IPv4 only gets IPv6 for new sandboxes; those that are there keep what they have, from records of
// that time.
func TestUpgradeToTwoFamilies(t *testing.T) {
	h := newHost(t)
	db := h.openDB("state.db")
	before := h.bridge(Config{DB: db, Network: podnet.Network{Name: "mpt0", Ranges: dualRanges[:1]}})
	old, young := h.sandbox("old"), h.sandbox("young")
	h.connectPorts(before, "old", old)
	type record struct {
		Address   netip.Prefix `json:"address"`
		Gateway   netip.Addr   `json:"gateway"`
		Interface string       `json:"interface"`
	}
	h.must(state.NewTable[record](db, "network-addresses").Put("old", record{netip.MustParsePrefix("10.201.0.2/24"), lease.GatewayOf(dualRanges[0]), lease.HostInterface("mpt0", "old")}))
	b := h.bridge(Config{DB: db, Network: podnet.Network{Name: "mpt0", Ranges: dualRanges}})
	h.must(b.Reconcile(t.Context(), map[ids.SandboxID]string{"old": old}))
	if ips := h.connectPorts(b, "old", old); len(ips) != 1 || ips[0].String() != "10.201.0.2" {
		t.Errorf("the old sandbox has %v", ips)
	}
	if ips := h.connectPorts(b, "young", young); len(ips) != 2 {
		t.Errorf("the young sandbox has %v", ips)
	}
	h.serve(old, ":80")
	h.ask(young, "10.201.0.2:80")
}

// Nobody has asked for IPv6: a range that the host uses is no reason not to start. And when the host has lost IPv6, what
// sandboxes had of it before is none either.
func TestDefaultsGiveWay(t *testing.T) {
	h := newHost(t)
	link := h.another("vpn0", "fd00::1/8")
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0"}, DB: h.openDB("one.db")})
	if r := b.ledger.Ranges(); len(r) != 1 || r[0] != lease.DefaultIPv4 {
		t.Errorf("ranges beside a VPN that has them all: %v", r)
	}
	h.must(b.Remove(t.Context()))
	h.must(netlink.LinkDel(link))

	cfg := Config{Network: podnet.Network{Name: "mpt1"}, DB: h.openDB("two.db")}
	before := h.bridge(cfg)
	pod := h.sandbox("pod")
	if ips := h.connectPorts(before, "pod", pod); len(ips) != 2 {
		t.Errorf("addresses %v", ips)
	}
	h.must(os.WriteFile(filepath.Join(links.IP6Conf, "all", "disable_ipv6"), []byte("1"), 0))
	t.Cleanup(func() { os.WriteFile(filepath.Join(links.IP6Conf, "all", "disable_ipv6"), []byte("0"), 0) })
	after := h.bridge(cfg)
	h.must(after.Status(t.Context()))
	if ips := h.connectPorts(after, "young", h.sandbox("young")); len(ips) != 1 {
		t.Errorf("addresses %v", ips)
	}
	h.must(after.Reconcile(t.Context(), nil))
	h.inUse(after)
	h.must(after.Remove(t.Context()))
}

// another makes an interface with an address.
func (h *testHost) another(name, addr string) netlink.Link {
	h.t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	h.must(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}))
	link, err := netlink.LinkByName(name)
	h.must(err)
	p := netip.MustParsePrefix(addr)
	h.must(netlink.AddrAdd(link, &netlink.Addr{IPNet: links.IPNet(p), Flags: nodad(p.Addr())}))
	h.must(netlink.LinkSetUp(link))
	return link
}
