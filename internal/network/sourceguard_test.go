package network

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"monopod.dev/monopod/test/harness"
)

var gateway4, gateway6 = netip.MustParseAddr("10.201.0.1"), netip.MustParseAddr("fd00:201::1")

// A pod cannot say that it is somebody else, in any protocol, and can say who it is. Nor does the host believe it.
func TestPodsCannotForgeTheirSource(t *testing.T) {
	h := newHost(t)
	x := h.hostile(h.bridge(Config{Bridge: "mpt0", PodCIDRs: dualRanges}))
	before := h.known("")
	for _, f := range x.forgeries(gateway4, gateway6) {
		if got := x.attacker.arrives(f.frame, x.victim); got != (f.passes == always) {
			t.Errorf("%s: arrives %v", f.name, got)
		}
	}
	if after := h.known(""); !slices.Equal(before, after) {
		t.Errorf("the host knows\n%s\nand before\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
}

// Where the guard is switched off that arrives which only the guard keeps out: so the frames of the test above are good ones. It can be switched on and
// off again with pods that are there.
func TestSourceGuardIsSwitched(t *testing.T) {
	h := newHost(t)
	cfg := Config{DB: h.openDB("state.db"), Bridge: "mpt0", PodCIDRs: dualRanges, NoSourceGuard: true}
	b := h.bridge(cfg)
	x := h.hostile(b)
	before := h.known("")
	for _, f := range x.forgeries(gateway4, gateway6) {
		if got := x.attacker.arrives(f.frame, x.victim); got != (f.passes != never) {
			t.Errorf("%s: arrives %v without the guard", f.name, got)
		}
	}
	if after := h.known(""); !slices.Equal(before, after) {
		t.Errorf("the host knows\n%s\nand before\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
	live := map[string]string{}
	for _, id := range b.ledger.sandboxes() {
		live[id] = filepath.Join(h.dir, id)
	}
	forged := ethernet(x.attacker.host, x.attacker.mac, 0x0800, ipv4(x.other.ip4, x.victim.ip4, udp("it is me, the other one")))
	for _, off := range []bool{false, true, false} {
		cfg.NoSourceGuard = off
		b = h.bridge(cfg)
		h.must(b.Reconcile(t.Context(), live))
		h.must(b.Status(t.Context()))
		if got := x.attacker.arrives(forged, x.victim); got != off {
			t.Errorf("switched off %v: a forged frame arrives %v", off, got)
		}
	}
}

// What somebody has put onto the bridge is in no guard, and gets nowhere by it.
func TestNothingComesFromTheBridge(t *testing.T) {
	h := newHost(t)
	b := h.bridge(Config{Bridge: "mpt0", PodCIDRs: testRanges})
	pod := h.sandbox("pod")
	ip := h.setup(b, "pod", pod)
	h.serve(pod, "0.0.0.0:80")
	stranger, _, _ := h.outside("192.168.77.0/30")
	up, err := netlink.LinkByName("up0")
	h.must(err)
	bridge, err := netlink.LinkByName("mpt0")
	h.must(err)
	h.must(netlink.LinkSetMaster(up, bridge))
	h.in(stranger, func() error {
		down, err := netlink.LinkByName("down0")
		h.must(err)
		return netlink.RouteAdd(&netlink.Route{LinkIndex: down.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: ipNet(netip.MustParsePrefix("0.0.0.0/0"))})
	})
	for _, at := range []string{ip.String() + ":80", "10.201.0.1:80"} {
		if !h.silent(stranger, at) {
			t.Errorf("a stranger on the bridge reaches %s", at)
		}
	}
}

// An end from before there was a guard, or that somebody has changed, is guarded after a restart; and the guard knows whom the
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
	forged := ethernet(x.attacker.host, x.attacker.mac, 0x0800, ipv4(x.other.ip4, x.victim.ip4, udp("it is me, the other one")))
	if !x.attacker.arrives(forged, x.victim) {
		t.Error("a forged frame does not arrive from an end without a group; this test tests nothing")
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
	if x.attacker.arrives(forged, x.victim) {
		t.Error("after a restart the end is not guarded")
	}
	if got := b.ledger.sandboxes(); !slices.Equal(got, []string{"attacker", "victim"}) {
		t.Errorf("after Reconcile %v have addresses", got)
	}
}

// sourcesAgree fails unless the guard has exactly what the ledger says.
func (h *testHost) sourcesAgree(b *Bridge) {
	h.t.Helper()
	h.must(b.withFirewall(func(fw *firewall) error {
		for _, fam := range sourceFamilies {
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

// What belongs to a sandbox is its own addresses.
func TestSourceElements(t *testing.T) {
	rec := lease{Interface: "mp0123456789ab", Addresses: []address{{Address: netip.MustParsePrefix("10.0.0.2/24")}, {Address: netip.MustParsePrefix("fd00::2/64")}}}
	key := func(ip string) string {
		return "mp0123456789ab\x00\x00" + string(netip.MustParseAddr(ip).AsSlice())
	}
	for i, want := range [][]string{{key("10.0.0.2")}, {key("fd00::2")}} {
		fam := sourceFamilies[i]
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
			all, err := fw.conn.GetSetElements(fw.sources(sourceFamilies[1]))
			none, said = len(all) == 0, fmt.Sprint(len(all))
			return err
		}))
		return none, said
	})
	if n := b.watcher.Looks(); n != 0 {
		t.Errorf("the watcher has looked %d times", n)
	}
}
