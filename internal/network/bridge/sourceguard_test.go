package bridge

import (
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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

var gateway4, gateway6 = netip.MustParseAddr("10.201.0.1"), netip.MustParseAddr("fd00:201::1")

// A pod cannot say that it is somebody else, in any protocol, and can say who it is. Nor does the host believe it.
func TestPodsCannotForgeTheirSource(t *testing.T) {
	h := newHost(t)
	x := h.hostile(h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: dualRanges}}))
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
	cfg := Config{DB: h.openDB("state.db"), Network: podnet.Network{Name: "mpt0", Ranges: dualRanges}, NoSourceGuard: true}
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
	live := map[ids.SandboxID]string{}
	for _, id := range b.ledger.Sandboxes() {
		live[id] = filepath.Join(h.dir, string(id))
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
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: testRanges}})
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
		return netlink.RouteAdd(&netlink.Route{LinkIndex: down.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: links.IPNet(netip.MustParsePrefix("0.0.0.0/0"))})
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
	cfg := Config{DB: h.openDB("state.db"), Network: podnet.Network{Name: "mpt0", Ranges: dualRanges}}
	b := h.bridge(cfg)
	x := h.hostile(b)
	h.unwatched(b)
	name := lease.HostInterface("mpt0", "attacker")
	link, err := netlink.LinkByName(name)
	h.must(err)
	h.must(netlink.LinkSetGroup(link, 0))
	forged := ethernet(x.attacker.host, x.attacker.mac, 0x0800, ipv4(x.other.ip4, x.victim.ip4, udp("it is me, the other one")))
	if !x.attacker.arrives(forged, x.victim) {
		t.Error("a forged frame does not arrive from an end without a group; this test tests nothing")
	}
	// Elements of nobody, and none of somebody.
	conn, err := nftables.New()
	h.must(err)
	set, err := conn.GetSetByName(&nftables.Table{Name: "mpt0", Family: nftables.TableFamilyINet}, "from4")
	h.must(err)
	rec, _ := b.ledger.Get("victim")
	h.must(conn.SetAddElements(set, []nftables.SetElement{{Key: sourceKey("mpnobody", netip.MustParseAddr("10.201.0.99"))}}))
	h.must(conn.SetDeleteElements(set, []nftables.SetElement{{Key: sourceKey(rec.Interface, rec.Addresses[0].Address.Addr())}}))
	h.must(conn.Flush())
	b = h.bridge(cfg)
	h.must(b.Reconcile(t.Context(), map[ids.SandboxID]string{"attacker": filepath.Join(h.dir, "attacker"), "victim": filepath.Join(h.dir, "victim")}))
	h.sourcesAgree(b)
	if x.attacker.arrives(forged, x.victim) {
		t.Error("after a restart the end is not guarded")
	}
	if got := b.ledger.Sandboxes(); !slices.Equal(got, []ids.SandboxID{"attacker", "victim"}) {
		t.Errorf("after Reconcile %v have addresses", got)
	}
}

// sourcesAgree fails unless the guard has exactly what the ledger says.
func (h *testHost) sourcesAgree(b *Bridge) {
	h.t.Helper()
	for set, ipv4 := range map[string]bool{"from4": true, "from6": false} {
		want, have := map[string]bool{}, h.sources(b, set)
		for _, rec := range b.ledger.All() {
			for _, a := range rec.Addresses {
				if ip := a.Address.Addr(); ip.Is4() == ipv4 {
					want[string(sourceKey(rec.Interface, ip))] = true
				}
			}
		}
		if !maps.Equal(have, want) {
			h.t.Errorf("%s has %q, want %q", set, slices.Collect(maps.Keys(have)), slices.Collect(maps.Keys(want)))
		}
	}
}

// sourceKey is an element of the source guard: what leaves by the host's end may bear the address.
func sourceKey(name string, ip netip.Addr) []byte {
	key := make([]byte, unix.IFNAMSIZ)
	copy(key, name)
	return append(key, ip.AsSlice()...)
}

// sources are the elements of a set of the source guard.
func (h *testHost) sources(b *Bridge, name string) map[string]bool {
	h.t.Helper()
	conn, err := nftables.New()
	h.must(err)
	set, err := conn.GetSetByName(&nftables.Table{Name: b.name, Family: nftables.TableFamilyINet}, name)
	h.must(err)
	elements, err := conn.GetSetElements(set)
	h.must(err)
	have := map[string]bool{}
	for _, e := range elements {
		have[string(e.Key)] = true
	}
	return have
}

// What is prepared is in the guard before there is an interface, and out of it when nobody comes.
func TestPreparedSandboxesAreGuarded(t *testing.T) {
	h := newHost(t)
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: dualRanges}})
	h.must(b.Status(t.Context()))
	for _, id := range []string{"comes", "never comes"} {
		b.Prepare(t.Context(), network.Request{SandboxID: ids.SandboxID(id), HostPorts: []network.HostPort{{Protocol: "TCP", HostPort: uint16(8000 + len(id)), ContainerPort: 80}}})
		h.sourcesAgree(b)
		h.must(b.rules.Check())
	}
	path := h.sandbox("comes")
	h.connectPorts(b, "comes", path, network.HostPort{Protocol: "TCP", HostPort: 8005, ContainerPort: 80})
	h.serve(path, "0.0.0.0:80")
	h.ask("", "127.0.0.1:8005")
	h.must(b.Teardown(t.Context(), "never comes"))
	h.inUse(b, "comes")
	h.must(b.sandboxes.leaving.now())
	h.must(b.Teardown(t.Context(), "comes"))
	h.inUse(b)
	harness.Eventually(t, "the guard has nobody", func() (bool, string) {
		left := len(h.sources(b, "from6"))
		return left == 0, fmt.Sprint(left)
	})
	if n := b.host.watcher.Looks(); n != 0 {
		t.Errorf("the watcher has looked %d times", n)
	}
}
