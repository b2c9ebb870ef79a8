package network

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/test/harness"
)

var gateway4, gateway6 = netip.MustParseAddr("10.201.0.1"), netip.MustParseAddr("fd00:201::1")

// A pod cannot say that it is somebody else, in any protocol, and can say who it is.
func TestPodsCannotForgeTheirSource(t *testing.T) {
	h := newHost(t)
	x := h.hostile(h.bridge(Config{Bridge: "mpt0", PodCIDRs: dualRanges}))
	for _, f := range x.forgeries(gateway4, gateway6) {
		if got := x.attacker.arrives(f.frame, x.victim); got != f.good {
			t.Errorf("%s: arrives %v, want %v", f.name, got, f.good)
		}
	}
}

// Where the guard is switched off everything arrives: so the frames of the test above are good ones. It can be switched on and
// off again with pods that are there.
func TestSourceGuardIsSwitched(t *testing.T) {
	h := newHost(t)
	cfg := Config{DB: h.openDB("state.db"), Bridge: "mpt0", PodCIDRs: dualRanges, NoSourceGuard: true}
	b := h.bridge(cfg)
	x := h.hostile(b)
	for _, f := range x.forgeries(gateway4, gateway6) {
		// The guard of the loopback addresses is there in any case.
		if !x.attacker.arrives(f.frame, x.victim) && !strings.HasSuffix(f.name, "of the loopback") {
			t.Errorf("%s does not arrive without the guard", f.name)
		}
	}
	if w := b.Warnings(); len(w) != 0 {
		t.Errorf("warnings of what was switched off: %q", w)
	}
	live := map[string]string{}
	for _, id := range b.ledger.sandboxes() {
		live[id] = filepath.Join(h.dir, id)
	}
	forged := ethernet(x.victim.mac, x.attacker.mac, 0x0800, ipv4(x.other.ip4, x.victim.ip4, udp("it is me")))
	for _, off := range []bool{false, true, false} {
		cfg.NoSourceGuard = off
		b = h.bridge(cfg)
		h.must(b.Reconcile(t.Context(), live))
		h.must(b.Status(t.Context()))
		if got := x.attacker.arrives(forged, x.victim); got != off {
			t.Errorf("switched off %v: a forged frame arrives %v", off, got)
		}
		if got := h.learns("attacker", b); got != off {
			t.Errorf("switched off %v: the bridge learns from pods %v", off, got)
		}
	}
}

// learns says whether the bridge learns hardware addresses from a sandbox's port.
func (h *testHost) learns(id string, b *Bridge) bool {
	h.t.Helper()
	link, err := netlink.LinkByName(hostInterface(b.name, id))
	h.must(err)
	p, err := netlink.LinkGetProtinfo(link)
	h.must(err)
	return p.Learning
}

// A pod cannot draw another one's frames to its port: not by a frame that the bridge keeps to itself, and learns from without
// showing it to netfilter (LLDP).
func TestPodsCannotMoveHardwareAddresses(t *testing.T) {
	h := newHost(t)
	b := h.bridge(Config{Bridge: "mpt0", PodCIDRs: dualRanges})
	x := h.hostile(b)
	before := h.places(b)
	for _, group := range []byte{0x00, 0x02, 0x03, 0x0e} {
		x.attacker.send(ethernet(net.HardwareAddr{1, 0x80, 0xc2, 0, 0, group}, x.other.mac, 0x88cc, make([]byte, 46)))
		x.attacker.send(ethernet(net.HardwareAddr{1, 0x80, 0xc2, 0, 0, group}, macOf(gateway4), 0x88cc, make([]byte, 46)))
	}
	x.attacker.send(ethernet(everybody, x.other.mac, 0x0800, ipv4(x.other.ip4, gateway4, udp("I moved"))))
	good := ethernet(x.victim.mac, x.attacker.mac, 0x0800, ipv4(x.attacker.ip4, x.victim.ip4, udp("all sent")))
	if !x.attacker.arrives(good, x.victim) {
		t.Error("a good frame does not arrive")
	}
	if after := h.places(b); !slices.Equal(before, after) {
		t.Errorf("the bridge's table is\n%s\nand was\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
	for _, s := range []*station{x.attacker, x.victim, x.other} {
		if !slices.ContainsFunc(before, func(p string) bool { return strings.HasPrefix(p, s.mac.String()) }) {
			t.Errorf("%s is not in the bridge's table", s.mac)
		}
	}
	// So the other pod's frames go to it, and not to everybody.
	frame := ethernet(x.other.mac, x.victim.mac, 0x0800, ipv4(x.victim.ip4, x.other.ip4, udp("a secret")))
	if !x.victim.arrives(frame, x.other) {
		t.Error("a frame does not arrive at the other pod")
	}
}

// places lists where the bridge sends frames for unicast addresses: address and port.
func (h *testHost) places(b *Bridge) (out []string) {
	h.t.Helper()
	all, err := netlink.NeighList(0, unix.AF_BRIDGE)
	h.must(err)
	for _, n := range all {
		link, err := netlink.LinkByIndex(n.LinkIndex)
		h.must(err)
		if len(n.HardwareAddr) == 6 && n.HardwareAddr[0]&1 == 0 && strings.HasPrefix(n.HardwareAddr.String(), "0a:6d") {
			out = append(out, n.HardwareAddr.String()+" at "+link.Attrs().Name)
		}
	}
	slices.Sort(out)
	return out
}

// The kernel's own ways go on: link-local addresses with duplicate address detection, neighbour discovery with them, and both
// families beside it.
func TestLinkLocalOfPods(t *testing.T) {
	h := newHost(t)
	b := h.bridge(Config{Bridge: "mpt0", PodCIDRs: dualRanges})
	local := map[string]netip.Addr{}
	for _, id := range []string{"one", "two"} {
		path := h.sandbox(id)
		local[id] = linkLocalOf(macOf(h.connectPorts(b, id, path)[0]))
		h.in(path, func() error {
			link, err := netlink.LinkByName(containerInterface)
			if err != nil {
				return err
			}
			return netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(local[id], 64))})
		})
		harness.Eventually(t, "duplicate address detection has ended", func() (ok bool, said string) {
			h.in(path, func() error {
				link, err := netlink.LinkByName(containerInterface)
				if err != nil {
					return err
				}
				addrs, err := netlink.AddrList(link, unix.AF_INET6)
				for _, a := range addrs {
					if prefixOf(a.IPNet).Addr() == local[id] {
						said = a.String()
						ok = a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) == 0
					}
				}
				return err
			})
			return ok, said
		})
	}
	h.serve(filepath.Join(h.dir, "two"), "[::]:80")
	var index int // by its name the interface would be looked for once in all namespaces (package net keeps it)
	h.in(filepath.Join(h.dir, "one"), func() error {
		link, err := netlink.LinkByName(containerInterface)
		index = link.Attrs().Index
		return err
	})
	if seen, err := h.tryAsk(filepath.Join(h.dir, "one"), fmt.Sprintf("[%s%%%d]:80", local["two"], index)); err != nil || seen.WithZone("") != local["one"] {
		t.Errorf("seen as %s, %v", seen, err)
	}
}

// A host without nftables for bridges says so by name, connects pods, and keeps what does not need it.
func TestNoNftablesForBridges(t *testing.T) {
	h := newHost(t)
	var log strings.Builder
	cfg := Config{DB: h.openDB("state.db"), Bridge: "mpt0", PodCIDRs: dualRanges, Log: slog.New(slog.NewTextHandler(&log, nil))}
	b, err := New(t.Context(), cfg)
	h.must(err)
	b.bridgeFamily = nftables.TableFamily(unix.NFPROTO_DECNET) // which no kernel has
	h.must(b.Start(t.Context()))
	defer b.Close()
	x := h.hostile(b)
	h.must(b.Status(t.Context()))
	if w := b.Warnings(); len(w) != 1 || !strings.Contains(w[0], "CONFIG_NF_TABLES_BRIDGE") {
		t.Errorf("warnings %q", w)
	}
	if n := strings.Count(log.String(), "CONFIG_NF_TABLES_BRIDGE"); n != 1 {
		t.Errorf("the log says it %d times:\n%s", n, &log)
	}
	before := h.places(b)
	x.attacker.send(ethernet(everybody, x.other.mac, 0x0800, ipv4(x.other.ip4, gateway4, udp("I moved"))))
	good := ethernet(x.victim.mac, x.attacker.mac, 0x0800, ipv4(x.attacker.ip4, x.victim.ip4, udp("all sent")))
	if !x.attacker.arrives(good, x.victim) {
		t.Error("a good frame does not arrive")
	}
	if after := h.places(b); !slices.Equal(before, after) {
		t.Errorf("the bridge's table is %q and was %q", after, before)
	}
	h.must(b.Teardown(t.Context(), "victim"))
	h.must(b.Remove(t.Context()))
}

// A port from before there was a guard, or that somebody has changed, is guarded after a restart; and the guard knows whom the
// ledger knows.
func TestSourceGuardIsReconciled(t *testing.T) {
	h := newHost(t)
	cfg := Config{DB: h.openDB("state.db"), Bridge: "mpt0", PodCIDRs: dualRanges}
	b := h.bridge(cfg)
	x := h.hostile(b)
	h.unwatched(b)
	name := hostInterface("mpt0", "attacker")
	link, err := netlink.LinkByName(name)
	h.must(err)
	h.must(netlink.LinkSetGroup(link, 0))
	h.must(netlink.LinkSetLearning(link, true))
	forged := ethernet(x.victim.mac, x.attacker.mac, 0x0800, ipv4(x.other.ip4, x.victim.ip4, udp("it is me")))
	if !x.attacker.arrives(forged, x.victim) {
		t.Error("a forged frame does not arrive from a port without a group; this test tests nothing")
	}
	// Elements of nobody, and none of somebody.
	h.must(b.withFirewall(func(fw *firewall) error {
		nobody := lease{Interface: "mpnobody", Addresses: []address{{Address: netip.MustParsePrefix("10.201.0.99/24")}}}
		rec, _ := b.ledger.get("victim")
		return fw.send(append(fw.sourceRequests(true, nobody), fw.sourceRequests(false, rec)...))
	}))
	b = h.bridge(cfg)
	h.must(b.Reconcile(t.Context(), map[string]string{"attacker": filepath.Join(h.dir, "attacker"), "victim": filepath.Join(h.dir, "victim")}))
	h.sourcesAgree(b)
	if x.attacker.arrives(forged, x.victim) || h.learns("attacker", b) {
		t.Error("after a restart the port is not guarded")
	}
	if got := b.ledger.sandboxes(); !slices.Equal(got, []string{"attacker", "victim"}) {
		t.Errorf("after Reconcile %v have addresses", got)
	}
}

// sourcesAgree fails unless the guard has exactly what the ledger says.
func (h *testHost) sourcesAgree(b *Bridge) {
	h.t.Helper()
	h.must(b.withFirewall(func(fw *firewall) error {
		for _, fam := range []sourceFamily{sources4, sources6} {
			want, have := map[string]bool{}, map[string]bool{}
			for _, rec := range b.ledger.all() {
				for _, e := range sourceElements(fam, rec) {
					want[string(e.Key)] = true
				}
			}
			all, err := fw.conn.GetSetElements(fw.sources(fam))
			if err != nil {
				return err
			}
			for _, e := range all {
				have[string(e.Key)] = true
				if !want[string(e.Key)] {
					h.t.Errorf("%s has an element of nobody: %q", fam.set, e.Key)
				}
			}
			if len(have) != len(want) {
				h.t.Errorf("%s has %d elements, not %d", fam.set, len(have), len(want))
			}
		}
		return nil
	}))
}

// What belongs to a sandbox is its own addresses, with the link-local one of its hardware address. It is pure.
func TestSourceElements(t *testing.T) {
	rec := lease{Interface: "mp0123456789ab", Addresses: []address{{Address: netip.MustParsePrefix("10.0.0.2/24")}, {Address: netip.MustParsePrefix("fd00::2/64")}}}
	key := func(ip string) string {
		return "mp0123456789ab\x00\x00" + "\x0a\x6d\x0a\x00\x00\x02\x00\x00" + string(netip.MustParseAddr(ip).AsSlice())
	}
	for fam, want := range map[sourceFamily][]string{sources4: {key("10.0.0.2")}, sources6: {key("fd00::2"), key("fe80::86d:aff:fe00:2")}} {
		var got []string
		for _, e := range sourceElements(fam, rec) {
			got = append(got, string(e.Key))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", fam.set, got, want)
		}
	}
}

// What is prepared is in the guard before there is an interface, and out of it when nobody comes.
func TestPreparedSandboxesAreGuarded(t *testing.T) {
	h := newHost(t)
	b := h.bridge(Config{Bridge: "mpt0", PodCIDRs: dualRanges})
	h.must(b.Status(t.Context()))
	for _, id := range []string{"comes", "never comes"} {
		b.Prepare(t.Context(), Request{SandboxID: id, HostPorts: []HostPort{{"TCP", netip.Addr{}, uint16(8000 + len(id)), 80}}})
		h.sourcesAgree(b)
		h.must(b.withFirewall((*firewall).check))
	}
	path := h.sandbox("comes")
	h.connectPorts(b, "comes", path, HostPort{"TCP", netip.Addr{}, 8005, 80})
	h.serve(path, "0.0.0.0:80")
	h.ask("", "127.0.0.1:8005")
	h.must(b.Teardown(t.Context(), "never comes"))
	h.inUse(b, "comes")
	h.must(b.leaving.now())
	h.must(b.Teardown(t.Context(), "comes"))
	h.inUse(b)
	harness.Eventually(t, "the guard has nobody", func() (none bool, said string) {
		h.must(b.withFirewall(func(fw *firewall) error {
			all, err := fw.conn.GetSetElements(fw.sources(sources6))
			none, said = len(all) == 0, fmt.Sprint(len(all))
			return err
		}))
		return none, said
	})
	if n := b.watcher.Looks(); n != 0 {
		t.Errorf("the watcher has looked %d times", n)
	}
}
