package bridge

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/lease"
	"monopod.dev/monopod/internal/network/links"
	"monopod.dev/monopod/internal/network/podnet"
	"monopod.dev/monopod/internal/state"
	"monopod.dev/monopod/test/harness"
)

var testRanges = ranges("10.201.0.0/24")

func ranges(all ...string) (out []netip.Prefix) {
	for _, r := range all {
		out = append(out, netip.MustParsePrefix(r))
	}
	return out
}

func (h *testHost) setup(b *Bridge, id, path string) netip.Addr {
	h.t.Helper()
	res, err := b.Setup(h.t.Context(), network.Request{SandboxID: ids.SandboxID(id), NetNS: path})
	h.must(err)
	if len(res.IPs) != 1 || res.Interface != "eth0" || res.Gateway != lease.GatewayOf(b.ledger.Ranges()[0]) {
		h.t.Fatalf("result %+v", res)
	}
	return res.IPs[0]
}

func TestSandboxesReachEachOther(t *testing.T) {
	h := newHost(t)
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: testRanges}})
	h.must(b.Status(t.Context()))
	one, two := h.sandbox("one"), h.sandbox("two")
	a1, a2 := h.setup(b, "one", one), h.setup(b, "two", two)
	if a1 != netip.MustParseAddr("10.201.0.2") || a2 != netip.MustParseAddr("10.201.0.3") {
		t.Fatalf("addresses %s %s", a1, a2)
	}
	h.serve(two, "0.0.0.0:80")
	if seen := h.ask(one, a2.String()+":80"); seen != a1 {
		t.Errorf("one is seen as %s, not as %s", seen, a1)
	}
	if seen := h.ask(two, "127.0.0.1:80"); seen.String() != "127.0.0.1" {
		t.Errorf("loopback is seen as %s", seen)
	}
	// The host reaches the sandboxes, and they reach the host at the gateway.
	h.serve("", "10.201.0.1:90")
	if seen := h.ask(one, "10.201.0.1:90"); seen != a1 {
		t.Errorf("one is seen by the host as %s", seen)
	}
	c, err := net.DialTimeout("tcp4", a2.String()+":80", 60*time.Second)
	h.must(err)
	c.Close()

	// Again: the same, nothing twice.
	if again := h.setup(b, "one", one); again != a1 {
		t.Errorf("one has %s now", again)
	}
	h.in(one, func() error {
		routes, err := netlink.RouteList(nil, unix.AF_INET)
		if err != nil || len(routes) != 2 {
			t.Errorf("routes %v %v", routes, err)
		}
		link, err := netlink.LinkByName("eth0")
		if err != nil || link.Attrs().HardwareAddr.String() != "0a:6d:0a:c9:00:02" {
			t.Errorf("link %+v %v", link, err)
		}
		v6, err := netlink.AddrList(link, unix.AF_INET6)
		if err != nil || len(v6) != 0 {
			t.Errorf("IPv6 addresses %v %v", v6, err)
		}
		return nil
	})
	h.must(b.Teardown(t.Context(), "one"))
	h.must(b.Teardown(t.Context(), "one"))
	// Its namespace stays, so its interface is deleted.
	h.inUse(b, "two")
	h.in(one, func() error {
		if _, err := netlink.LinkByName("eth0"); !links.IsNoLink(err) {
			t.Errorf("eth0 after Teardown: %v", err)
		}
		return nil
	})
	// A namespace that is gone before its Teardown.
	h.drop(two)
	h.must(b.Teardown(t.Context(), "two"))
	h.inUse(b)
}

func TestMasqueradeAndForeignFirewall(t *testing.T) {
	h := newHost(t)
	outside, host, machine := h.outside("192.168.77.0/30")
	h.serve(outside, "0.0.0.0:80")

	// Another engine's chain, that drops what it does not know.
	conn, err := nftables.New()
	h.must(err)
	table := conn.AddTable(&nftables.Table{Name: "filter", Family: nftables.TableFamilyIPv4})
	drop := nftables.ChainPolicyDrop
	chain := conn.AddChain(&nftables.Chain{Name: "FORWARD", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter, Policy: &drop})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictReturn}}})
	h.must(conn.Flush())
	defer func() {
		conn.DelTable(table)
		h.must(conn.Flush())
	}()
	rules := func() int {
		all, err := conn.GetRules(table, chain)
		h.must(err)
		return len(all)
	}

	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: testRanges}})
	one := h.sandbox("one")
	h.setup(b, "one", one)
	if seen := h.ask(one, machine.String()+":80"); seen != host {
		t.Errorf("the outside sees %s, not the host's %s", seen, host)
	}
	h.must(b.Start(t.Context())) // again: no rule twice
	if n := rules(); n != 3 {
		t.Errorf("%d rules in the foreign chain, not 3", n)
	}
	h.must(b.Remove(t.Context()))
	if n := rules(); n != 1 {
		t.Errorf("%d rules in the foreign chain after Remove, not 1", n)
	}
}

func TestAddressesGoRoundAndEnd(t *testing.T) {
	h := newHost(t)
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: ranges("10.201.0.0/29")}})
	ns := h.sandbox("one")
	// An address that is given back is not the next one to be handed out.
	var got []string
	for range 6 {
		got = append(got, h.setup(b, "one", ns).String())
		h.must(b.Teardown(t.Context(), "one"))
	}
	want := []string{"10.201.0.2", "10.201.0.3", "10.201.0.4", "10.201.0.5", "10.201.0.6", "10.201.0.2"}
	if !slices.Equal(got, want) {
		t.Errorf("addresses %v, want %v", got, want)
	}
	for i := range 5 {
		id := string(rune('a' + i))
		h.setup(b, id, h.sandbox(id))
	}
	_, err := b.Setup(t.Context(), network.Request{SandboxID: "z", NetNS: ns})
	if !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "10.201.0.0/29 is used up: all of its 5") {
		t.Errorf("a full range: %v", err)
	}
	h.must(b.Teardown(t.Context(), "c")) // its interface is there still
	if a := h.setup(b, "z", h.sandbox("z")); a.String() != "10.201.0.5" {
		t.Errorf("z got %s", a)
	}
}

// TestAddressThatGetsFreeMeanwhileIsFound: a range is not used up when its last address gets free just as it is looked for.
func TestAddressThatGetsFreeMeanwhileIsFound(t *testing.T) {
	h := newHost(t)
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: ranges("10.202.0.0/30")}})
	for i := range 100 {
		id := fmt.Sprint("s", i)
		ns := h.sandbox(id)
		if a := h.setup(b, id, ns); a.String() != "10.202.0.2" {
			t.Fatalf("the only address is %s", a)
		}
		h.must(b.Teardown(t.Context(), ids.SandboxID(id)))
		h.drop(ns) // the kernel tells when the interface has ended with it
	}
}

func TestFailedSetupLeavesNothing(t *testing.T) {
	h := newHost(t)
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: testRanges}})
	_, err := b.Setup(t.Context(), network.Request{SandboxID: "x", NetNS: h.dir + "/none"})
	if !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), h.dir+"/none") {
		t.Errorf("a namespace that is not there: %v", err)
	}
	h.must(os.WriteFile(h.dir+"/file", nil, 0o600))
	if _, err := b.Setup(t.Context(), network.Request{SandboxID: "x", NetNS: h.dir + "/file"}); err == nil {
		t.Error("a plain file is taken for a namespace")
	}
	taken := h.sandbox("taken")
	h.in(taken, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "eth0"
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "peer"})
	})
	if _, err := b.Setup(t.Context(), network.Request{SandboxID: "x", NetNS: taken}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a namespace with an eth0: %v", err)
	}
	if n := b.ledger.InUse(); n != 0 {
		t.Errorf("%d addresses in use", n)
	}
}

func TestRestartAndReconcile(t *testing.T) {
	h := newHost(t)
	db := h.openDB("state.db")
	cfg := Config{DB: db, Network: podnet.Network{Name: "mpt0", Ranges: testRanges}}
	b := h.bridge(cfg)
	stays, gone, lost := h.sandbox("stays"), h.sandbox("gone"), h.sandbox("lost")
	a := h.setup(b, "stays", stays)
	h.setup(b, "gone", gone)
	unrecorded := h.setup(b, "lost", lost)
	// A crash after the address was written down, before it was used.
	disarm := failpoint.Arm("network/setup/assigned", func() error { return errors.New("crash") })
	_, err := b.Setup(t.Context(), network.Request{SandboxID: "half", NetNS: h.sandbox("half")})
	disarm()
	if err == nil {
		t.Fatal("the failpoint was not hit")
	}
	// A crash after the teardown had begun.
	half2 := h.sandbox("half2")
	h.setup(b, "half2", half2)
	disarm = failpoint.Arm("network/teardown/unmapped", func() error { return errors.New("crash") })
	err = b.Teardown(t.Context(), "half2")
	disarm()
	if err == nil {
		t.Fatal("the failpoint was not hit")
	}
	// A record that was lost with a damaged state file.
	h.must(state.NewTable[lease.Lease](cfg.DB, lease.AddressTable).Delete("lost"))
	// A port of a sandbox that nobody knows.
	attrs := netlink.NewLinkAttrs()
	attrs.Name = lease.HostInterface("mpt0", "nobody")
	h.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "nobody"}))
	orphan, err := netlink.LinkByName(attrs.Name)
	h.must(err)
	bridge, err := netlink.LinkByName("mpt0")
	h.must(err)
	h.must(netlink.LinkSetMaster(orphan, bridge))

	// A pin that somebody has unmounted: processes in the namespace go on.
	process := h.sandbox("unpinned")
	unpinned := h.setup(b, "unpinned", process)

	after := h.bridge(cfg)
	if n := after.ledger.InUse(); n != 5 {
		t.Errorf("%d records were read, not 5", n)
	}
	h.must(after.Reconcile(t.Context(), map[ids.SandboxID]string{"stays": stays, "lost": lost, "unpinned": ""}))
	if got := after.ledger.Sandboxes(); !slices.Equal(got, []ids.SandboxID{"lost", "stays", "unpinned"}) {
		t.Errorf("after Reconcile %v have addresses", got)
	}
	if got := h.setup(after, "stays", stays); got != a {
		t.Errorf("stays has %s, had %s", got, a)
	}
	if got := h.setup(after, "lost", lost); got != unrecorded {
		t.Errorf("lost has %s, had %s", got, unrecorded)
	}
	if _, err := netlink.LinkByName(attrs.Name); !links.IsNoLink(err) {
		t.Errorf("the orphan: %v", err)
	}
	// Somebody deletes the bridge: Status brings it back, with its ports.
	bridge, err = netlink.LinkByName("mpt0")
	h.must(err)
	h.must(netlink.LinkDel(bridge))
	if err := after.host.look(); !errdefs.IsUnavailable(err) {
		t.Errorf("a host without the bridge: %v", err)
	}
	h.must(after.Status(t.Context()))
	h.serve(stays, "0.0.0.0:80")
	if seen := h.ask(lost, a.String()+":80"); seen != unrecorded {
		t.Errorf("seen as %s", seen)
	}
	if seen := h.ask(process, a.String()+":80"); seen != unpinned {
		t.Errorf("seen as %s, had %s", seen, unpinned)
	}
}

func TestTwoNodesOnOneHost(t *testing.T) {
	h := newHost(t)
	one := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: testRanges}})
	two := h.bridge(Config{Network: podnet.Network{Name: "mpt1", Ranges: ranges("10.202.0.0/24")}})
	ns1, ns2 := h.sandbox("one"), h.sandbox("two")
	// The same sandbox id on both must not collide.
	h.setup(one, "same", ns1)
	a2 := h.setup(two, "same", ns2)
	h.serve(ns2, "0.0.0.0:80")
	h.ask(ns1, a2.String()+":80")
	// The one that switched forwarding on goes: the other one still needs it.
	h.must(one.Remove(t.Context()))
	h.must(two.Status(t.Context()))

	third := h.openDB("third.db")
	for name, c := range map[string]struct {
		cfg  Config
		says string
	}{
		"a bridge of another node": {Config{Network: podnet.Network{Name: "mpt1", Ranges: ranges("10.203.0.0/24")}}, "ip link delete mpt1"},
		"no bridge":                {Config{Network: podnet.Network{Name: "lo", Ranges: ranges("10.203.0.0/24")}}, "interface lo"},
		"a range in use":           {Config{Network: podnet.Network{Name: "mpt3", Ranges: ranges("10.202.0.0/16")}}, "10.202.0.0/16 overlaps the address 10.202.0.1/32 of mpt1"},
	} {
		c.cfg.DB = third
		if _, err := New(t.Context(), c.cfg); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What node one has switched on was node two's to guard, and is to switch off.
	outside, host, _ := h.network("a", "192.168.77.0/30")
	h.route(outside, host)
	other, host2, machine := h.network("b", "192.168.78.0/30")
	h.route(other, host2)
	h.serve(other, "0.0.0.0:80")
	if !h.silent(outside, machine.String()+":80") {
		t.Error("the host is a router between its networks, since the first node has gone")
	}
	h.must(two.Remove(t.Context()))
}

// A VPN that takes a part of the range while pods run does not keep a restarted node from starting.
func TestOverlapThatCameLater(t *testing.T) {
	h := newHost(t)
	cfg := Config{DB: h.openDB("state.db"), Network: podnet.Network{Name: "mpt0", Ranges: testRanges}}
	h.bridge(cfg)
	h.outside("10.201.0.128/30")
	again := h.bridge(cfg)
	h.must(again.Status(t.Context()))
}

func TestBadConfig(t *testing.T) {
	h := newHost(t)
	db := h.openDB("x.db")
	for _, cfg := range []Config{
		{Network: podnet.Network{Name: "", Ranges: testRanges}},
		{Network: podnet.Network{Name: "a-name-too-long0", Ranges: testRanges}},
		{Network: podnet.Network{Name: "b", Ranges: ranges("10.0.0.0/24", "10.1.0.0/24")}},
		{Network: podnet.Network{Name: "b", Ranges: ranges("fd00::/127")}},
		{Network: podnet.Network{Name: "b", Ranges: ranges("fe80::/64")}},
		{Network: podnet.Network{Name: "b", Ranges: ranges("224.0.0.0/8")}},
		{Network: podnet.Network{Name: "b", Ranges: []netip.Prefix{{}}}},
		{Network: podnet.Network{Name: "b", Ranges: ranges("10.0.0.0/31")}},
		{Network: podnet.Network{Name: "b", Ranges: ranges("0.0.0.0/0")}},
	} {
		cfg.DB = db
		if _, err := New(t.Context(), cfg); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

// Status finds what somebody has broken, and repairs it.
func TestStatusRepairs(t *testing.T) {
	h := newHost(t)
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: testRanges}})
	bridge, err := netlink.LinkByName("mpt0")
	h.must(err)
	conn, err := nftables.New()
	h.must(err)
	for says, breakIt := range map[string]func() error{
		"bridge mpt0 is down": func() error { return netlink.LinkSetDown(bridge) },
		"has lost its address 10.201.0.1": func() error {
			return netlink.AddrDel(bridge, &netlink.Addr{IPNet: links.IPNet(links.HostPrefix(gateway4))})
		},
		"ip_forward is 0": func() error { return os.WriteFile(links.IPForwardFile, []byte("0\n"), 0) },
		`table "mpt0" is not there`: func() error {
			conn.DelTable(&nftables.Table{Name: "mpt0", Family: nftables.TableFamilyINet})
			return conn.Flush()
		},
	} {
		h.unwatched(b)
		h.must(breakIt())
		if err := b.host.look(); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
		h.must(b.Status(t.Context())) // repairs it
		h.must(b.host.look())
	}
}

func TestManyAtOnce(t *testing.T) {
	h := newHost(t)
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: testRanges}})
	const n = 24
	paths := make([]string, n)
	for i := range paths {
		paths[i] = h.sandbox("s" + string(rune('a'+i)))
	}
	got := make([]netip.Addr, n)
	var wg sync.WaitGroup
	for i, p := range paths {
		wg.Go(func() {
			res, err := b.Setup(t.Context(), network.Request{SandboxID: ids.SandboxID(p), NetNS: p})
			if err != nil {
				t.Error(err)
				return
			}
			got[i] = res.IPs[0]
		})
	}
	wg.Wait()
	slices.SortFunc(got, netip.Addr.Compare)
	if len(slices.Compact(got)) != n {
		t.Errorf("addresses %v", got)
	}
	for _, p := range paths {
		wg.Go(func() {
			if err := b.Teardown(t.Context(), ids.SandboxID(p)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// TestSetupIsFast holds the budget of a sandbox's network: 5 ms, the write to disk included, for the faster ones of 50. The
// others are those that had to wait for somebody else on this machine.
func TestSetupIsFast(t *testing.T) {
	h := newHost(t)
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: testRanges}})
	var setups, teardowns, spent []time.Duration
	for range 50 {
		ns := h.sandbox("s")
		start, began := time.Now(), h.processorTime()
		h.setup(b, "s", ns)
		setups, spent = append(setups, time.Since(start)), append(spent, h.processorTime()-began)
		start = time.Now()
		h.must(b.Teardown(t.Context(), "s"))
		teardowns = append(teardowns, time.Since(start))
		h.drop(ns)
		h.inUse(b)
	}
	slices.Sort(setups)
	slices.Sort(teardowns)
	slices.Sort(spent)
	t.Logf("setup p50 %v p90 %v, of a processor p50 %v, teardown p50 %v p90 %v", setups[25], setups[45], spent[25], teardowns[25], teardowns[45])
	// How long it takes on a busy machine says nothing of it, and an emulated one says nothing at all.
	if harness.SlowFactor() == 1 && spent[10] > 5*time.Millisecond {
		t.Errorf("setup takes %v of a processor", spent[10])
	}
}

// processorTime is what this process has had of the processors, the kernel's work for it included.
func (h *testHost) processorTime() time.Duration {
	h.t.Helper()
	var now unix.Timespec
	h.must(unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now))
	return time.Duration(now.Nano())
}

// On a host whose sysctls cannot be written a node runs, if forwarding is on already.
func TestReadOnlySysctls(t *testing.T) {
	h := newHost(t)
	h.must(os.WriteFile(links.IPForwardFile, []byte("1\n"), 0))
	defer func() { h.must(os.WriteFile(links.IPForwardFile, []byte("0\n"), 0)) }()
	one, two := h.sandbox("one"), h.sandbox("two")
	cfg, six := Config{Network: podnet.Network{Name: "mpt0"}, DB: h.openDB("four.db")}, Config{Network: podnet.Network{Name: "mpt1", Ranges: dualRanges}, DB: h.openDB("six.db")}
	h.in(fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid()), func() error {
		// A mount namespace of this thread, which ends with f.
		h.must(unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS))
		h.must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		h.must(unix.Mount("/proc/sys", "/proc/sys", "", unix.MS_BIND, ""))
		h.must(unix.Mount("", "/proc/sys", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		b, err := New(t.Context(), cfg)
		if err != nil {
			return err
		}
		defer b.Close()
		if err := b.Start(t.Context()); err != nil {
			return err
		}
		if r := b.ledger.Ranges(); len(r) != 1 || !r[0].Addr().Is4() {
			t.Errorf("ranges %v", r)
		}
		for id, path := range map[string]string{"one": one, "two": two} {
			if _, err := b.Setup(t.Context(), network.Request{SandboxID: ids.SandboxID(id), NetNS: path}); err != nil {
				return err
			}
		}
		if _, err := New(t.Context(), six); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "fd00:201::/64") {
			t.Errorf("an IPv6 range: %v", err)
		}
		return errors.Join(b.Status(t.Context()), b.Remove(t.Context()))
	})
}

// TestALateDepartureIsNotTheNextOne: what was noted of a sandbox's departure does not free its address when it has been connected again
// meanwhile, and leaves once more: its interface is there still.
func TestALateDepartureIsNotTheNextOne(t *testing.T) {
	h := newHost(t)
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: testRanges}})
	ns := h.sandbox("one")
	h.setup(b, "one", ns)
	h.must(b.Teardown(t.Context(), "one"))
	b.sandboxes.leaving.mu.Lock()
	late := maps.Clone(b.sandboxes.leaving.pending)
	b.sandboxes.leaving.mu.Unlock()
	h.setup(b, "one", ns)
	h.must(b.Teardown(t.Context(), "one"))
	h.must(b.sandboxes.leaving.finish(late, nil))
	if rec, ok := b.ledger.Get("one"); !ok || !rec.Leaving {
		t.Error("its address is free")
	}
	h.must(b.sandboxes.leaving.now())
	if _, ok := b.ledger.Get("one"); ok {
		t.Error("its address is in use")
	}
}
