package choice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"

	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/bridge"
	"monopod.dev/monopod/internal/network/cni"
	"monopod.dev/monopod/internal/network/podnet"
	"monopod.dev/monopod/internal/state"
	"monopod.dev/monopod/test/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	bridgeRange = netip.MustParsePrefix("10.205.0.0/24")
	cniRange    = netip.MustParsePrefix("10.206.0.0/24")
)

// testHost is a network namespace that plays the host.
type testHost struct {
	*testing.T
	dir string
	db  *state.DB
	now *Network
}

func newHost(t *testing.T) *testHost {
	t.Helper()
	harness.NewNetwork(t)
	dir, err := os.MkdirTemp("/tmp", "mpch")
	if err != nil {
		t.Fatal(err)
	}
	h := &testHost{T: t, dir: dir}
	harness.CheckHost(t, harness.Place{Dirs: []string{dir}})
	h.Cleanup(func() { harness.ClearNetwork(t) })
	t.Cleanup(func() { h.must(tree.Remove(context.Background(), dir)) }) // somebody beside this test may have a copy of the host's mounts for a moment
	h.db, _, err = state.Open(state.Config{Path: filepath.Join(dir, "state.db")})
	h.must(err)
	t.Cleanup(func() { h.must(h.db.Close()) })
	return h
}

func (h *testHost) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// configure puts a CNI configuration into its folder, or takes it away.
func (h *testHost) configure(on bool) {
	h.Helper()
	path := filepath.Join(h.dir, "conf", "10-pods.conflist")
	if !on {
		h.must(os.Remove(path))
		return
	}
	h.must(os.MkdirAll(filepath.Dir(path), 0o755))
	h.must(os.WriteFile(path, fmt.Appendf(nil, `{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cbr0", "isGateway": true,
		"ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": %q}]]}}]}`, filepath.Join(h.dir, "ipam"), cniRange), 0o644))
}

// open makes the network; one that was there before is closed, as at a restart.
func (h *testHost) open(mode string) *Network {
	h.Helper()
	if h.now != nil {
		h.now.Close()
	}
	log := slog.New(slog.NewTextHandler(h.Output(), nil))
	n, err := New(h.Context(), Config{Mode: mode, Log: log,
		Bridge: bridge.Config{DB: h.db, Network: podnet.Network{Name: "mpc0", Ranges: []netip.Prefix{bridgeRange}}, Log: log},
		CNI:    cni.Config{DB: h.db, ConfDir: filepath.Join(h.dir, "conf"), BinDirs: []string{"/usr/lib/cni"}, CacheDir: filepath.Join(h.dir, "cache"), Log: log}})
	h.must(err)
	h.must(n.Start(h.Context()))
	if h.now == nil {
		h.Cleanup(func() {
			// The test's context has ended by now.
			h.must(h.now.Remove(context.WithoutCancel(h.Context())))
			h.now.Close()
		})
	}
	h.now = n
	return n
}

func (h *testHost) sandbox(name string) string {
	h.Helper()
	path := filepath.Join(h.dir, "ns-"+name)
	harness.PinNetNS(h, path)
	return path
}

// setup connects a new sandbox and wants its address to be of a range.
func (h *testHost) setup(n *Network, id string, want netip.Prefix) network.Result {
	h.Helper()
	res, err := n.Setup(h.Context(), request(id, h.sandbox(id)))
	h.must(err)
	if len(res.IPs) == 0 || !want.Contains(res.IPs[0]) {
		h.Fatalf("%s has %v, want one of %s", id, res.IPs, want)
	}
	return res
}

func request(id, path string) network.Request {
	return network.Request{SandboxID: ids.SandboxID(id), NetNS: path, Pod: network.PodInfo{Namespace: "default", Name: id, UID: id}}
}

// wantLeases: so many addresses are taken with CNI's host-local.
func (h *testHost) wantLeases(want int) {
	h.Helper()
	got, err := filepath.Glob(filepath.Join(h.dir, "ipam", "pods", "10.*"))
	if err != nil || len(got) != want {
		h.Errorf("leases %v, %v, want %d", got, err, want)
	}
}

func hasLink(name string) bool {
	_, err := netlink.LinkByName(name)
	return err == nil
}

func TestTheChoiceChangesWhileItRuns(t *testing.T) {
	h := newHost(t)
	n := h.open(Auto)
	h.must(n.Status(t.Context()))
	a := h.setup(n, "a", bridgeRange)
	h.configure(true)
	h.must(n.Status(t.Context()))
	b := h.setup(n, "b", cniRange)
	again, err := n.Setup(t.Context(), request("a", filepath.Join(h.dir, "ns-a")))
	if err != nil || again.IPs[0] != a.IPs[0] {
		t.Errorf("a has %v now, %v", again, err)
	}
	stats, err := n.InterfaceStats(t.Context(), map[ids.SandboxID]string{"b": filepath.Join(h.dir, "ns-b")})
	if err != nil || len(stats["b"]) != 1 {
		t.Errorf("stats %v, %v", stats, err)
	}

	// A restart knows both, whatever is configured now.
	h.configure(false)
	n = h.open(Auto)
	live := map[ids.SandboxID]string{"a": filepath.Join(h.dir, "ns-a"), "b": filepath.Join(h.dir, "ns-b")}
	h.must(n.Reconcile(t.Context(), live))
	for id, want := range map[string]network.Result{"a": a, "b": b} {
		if got, err := n.Setup(t.Context(), request(id, live[ids.SandboxID(id)])); err != nil || got.IPs[0] != want.IPs[0] {
			t.Errorf("%s has %v, had %v: %v", id, got, want, err)
		}
	}
	h.setup(n, "c", bridgeRange)
	h.wantLeases(1)
	for _, id := range []string{"a", "b", "b", "c", "none"} {
		h.must(n.Teardown(t.Context(), ids.SandboxID(id)))
	}
	h.wantLeases(0)
	// The bridge frees an address when the interface has gone.
	harness.Eventually(t, "the bridge's addresses to be free", func() (bool, string) {
		b := n.known()
		return !b.Has("a") && !b.Has("c"), fmt.Sprint(b.Has("a"), b.Has("c"))
	})
}

// TestModeCNI: nothing is made of the bridge, and without a configuration there is no network.
func TestModeCNI(t *testing.T) {
	h := newHost(t)
	n := h.open(CNI)
	for _, call := range []func() error{
		func() error { return n.Status(t.Context()) },
		func() error { _, err := n.Setup(t.Context(), request("a", h.sandbox("a"))); return err },
	} {
		var r interface{ Reason() string }
		if err := call(); !errdefs.IsUnavailable(err) || !errors.As(err, &r) || r.Reason() != "NetworkPluginNotReady" || !strings.Contains(err.Error(), filepath.Join(h.dir, "conf")) {
			t.Errorf("without a configuration: %v", err)
		}
	}
	h.must(n.UpdatePodCIDR(t.Context(), []netip.Prefix{netip.MustParsePrefix("10.207.0.0/24")}))
	h.must(n.Reconcile(t.Context(), nil))
	h.configure(true)
	h.setup(n, "b", cniRange)
	h.must(n.Teardown(t.Context(), "b"))
	if hasLink("mpc0") {
		t.Error("the bridge was made")
	}
}

// TestModeBridge: a configuration is not looked at, but for sandboxes that were connected by it.
func TestModeBridge(t *testing.T) {
	h := newHost(t)
	h.configure(true)
	n := h.open(Auto)
	if hasLink("mpc0") {
		t.Error("the bridge was made where nobody needs it")
	}
	h.setup(n, "a", cniRange)
	n = h.open(Bridge)
	h.must(n.Status(t.Context()))
	h.setup(n, "b", bridgeRange)
	h.must(n.Reconcile(t.Context(), map[ids.SandboxID]string{"b": filepath.Join(h.dir, "ns-b")}))
	h.wantLeases(0)
}

// TestAFaultIsNoReasonForTheBridge: pods wait for a configuration that cannot be read.
func TestAFaultIsNoReasonForTheBridge(t *testing.T) {
	h := newHost(t)
	h.configure(true)
	h.must(os.WriteFile(filepath.Join(h.dir, "conf", "10-pods.conflist"), []byte(`{"cniVersion": "1.0`), 0o644))
	n := h.open(Auto)
	if _, err := n.Setup(t.Context(), request("a", h.sandbox("a"))); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "10-pods.conflist") {
		t.Errorf("a file with a fault: %v", err)
	}
	h.configure(true)
	h.setup(n, "b", cniRange)
	h.must(n.Teardown(t.Context(), "b"))
}

// TestNoBridgeIsNeeded: a range that the bridge cannot have is a failure only where the bridge is needed.
func TestNoBridgeIsNeeded(t *testing.T) {
	h := newHost(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "taken0"
	h.must(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}))
	link, err := netlink.LinkByName("taken0")
	h.must(err)
	addr, err := netlink.ParseAddr("10.205.0.9/24")
	h.must(err)
	h.must(netlink.AddrAdd(link, addr))
	h.configure(true)
	n := h.open(Auto)
	h.setup(n, "a", cniRange)
	h.must(n.Reconcile(t.Context(), map[ids.SandboxID]string{"a": filepath.Join(h.dir, "ns-a"), "unknown": h.sandbox("unknown")}))
	h.configure(false)
	if _, err := n.Setup(t.Context(), request("b", h.sandbox("b"))); err == nil || !strings.Contains(err.Error(), "taken0") {
		t.Errorf("a range that is taken: %v", err)
	}
	if err := n.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "taken0") {
		t.Errorf("status: %v", err)
	}
	h.must(netlink.LinkDel(link))
	h.setup(n, "c", bridgeRange)
	h.must(n.Teardown(t.Context(), "c"))
}

// Packets of CNI's pods are forwarded, too: while there are any, or may be, the bridge does not keep forwarding for its own, also
// where an earlier process has left its rules.
func TestForwardingIsSharedWithCNI(t *testing.T) {
	h := newHost(t)
	h.must(os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("0\n"), 0))
	guarded := func(when string, want bool) {
		t.Helper()
		conn, err := nftables.New()
		h.must(err)
		table := &nftables.Table{Name: "mpc0", Family: nftables.TableFamilyINet}
		rules, err := conn.GetRules(table, &nftables.Chain{Name: "forward", Table: table})
		h.must(err)
		if (len(rules) > 0) != want {
			t.Errorf("%s: %d rules keep forwarding for the bridge's pods, want any %v", when, len(rules), want)
		}
	}
	n := h.open(Auto)
	h.setup(n, "one", bridgeRange)
	guarded("with the bridge alone", true)
	h.configure(true)
	h.setup(n, "two", cniRange)
	guarded("when CNI is configured", false)
	h.must(n.Status(t.Context()))

	h.configure(false)
	n = h.open(Auto)
	guarded("after a restart without CNI", true)
	h.must(n.Reconcile(t.Context(), map[ids.SandboxID]string{"one": filepath.Join(h.dir, "ns-one"), "two": filepath.Join(h.dir, "ns-two")}))
	guarded("with a pod of CNI that lives", false)
	h.must(n.Teardown(t.Context(), "two"))
	n = h.open(Auto)
	h.must(n.Reconcile(t.Context(), map[ids.SandboxID]string{"one": filepath.Join(h.dir, "ns-one")}))
	guarded("after the last pod of CNI", true)
	h.configure(true)
	h.open(Auto) // which does not start the bridge
	guarded("after a restart with CNI", false)
}

// TestOnlyWhoNeedsTheBridgeWaitsForIt: while it is being put on the host, which takes as long as the disk does, who needs none goes on.
func TestOnlyWhoNeedsTheBridgeWaitsForIt(t *testing.T) {
	h := newHost(t)
	h.configure(true)
	n := h.open(Auto) // which does not start the bridge
	h.configure(false)
	hangs, ends := make(chan struct{}), make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		if err := h.db.Update(func(*state.Tx) error { close(hangs); <-ends; return nil }); err != nil {
			t.Error(err)
		}
	})
	<-hangs

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	others.Go(func() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			for len(n.making) == 0 {
				runtime.Gosched()
			}
			if n.byCNI(t.Context()) || n.known() == nil {
				t.Error("it is not the bridge that connects new sandboxes")
			}
			n.Gateways(t.Context())
			n.Warnings()
			if err := n.Teardown(t.Context(), "nobody"); err != nil {
				t.Error(err)
			}
			if err := n.Status(gone); !errors.Is(err, context.Canceled) {
				t.Errorf("the status for one who has gone: %v", err)
			}
			if _, started := n.onHost(); started {
				t.Error("it was started without the disk")
			}
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Error("somebody who needs no bridge waits for it")
		}
		close(ends)
	})
	h.must(n.Start(t.Context())) // here, because it looks at the test's own network
	others.Wait()
	h.setup(n, "a", bridgeRange)
	h.must(n.Teardown(t.Context(), "a"))
}
