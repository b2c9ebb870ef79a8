package network_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/bridge"
	"monopod.dev/monopod/internal/network/choice"
	"monopod.dev/monopod/internal/network/cni"
	"monopod.dev/monopod/internal/network/podnet"
	"monopod.dev/monopod/internal/state"
	"monopod.dev/monopod/test/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// networks are all that keep the contract: what is said at network.Network.
var networks = map[string]func(*testHost) network.Network{
	"bridge": func(h *testHost) network.Network {
		b, err := bridge.New(h.Context(), h.bridge())
		h.must(err)
		h.must(b.Start(h.Context()))
		return b
	},
	"cni": func(h *testHost) network.Network {
		n, err := cni.New(h.Context(), h.cni())
		h.must(err)
		return n
	},
	"choice of the bridge": func(h *testHost) network.Network { return h.choice(choice.Bridge) },
	"choice of CNI":        func(h *testHost) network.Network { return h.choice(choice.CNI) },
}

// contract runs a part of the contract for each network, on a host of its own.
func contract(t *testing.T, part func(*testHost)) {
	t.Helper()
	for name, open := range networks {
		t.Run(name, func(t *testing.T) { part(newHost(t, open)) })
	}
}

var (
	firstRange  = netip.MustParsePrefix("10.207.0.0/24")
	secondRange = netip.MustParsePrefix("10.208.0.0/24")
)

// testHost is a network namespace that plays the host of one network.
type testHost struct {
	*testing.T
	network.Network // that of the process that runs now
	open            func(*testHost) network.Network
	dir             string
	db              *state.DB
}

func newHost(t *testing.T, open func(*testHost) network.Network) *testHost {
	t.Helper()
	harness.NewNetwork(t)
	dir, err := os.MkdirTemp("/tmp", "mpcon")
	if err != nil {
		t.Fatal(err)
	}
	h := &testHost{T: t, open: open, dir: dir}
	harness.CheckHost(t, harness.Place{Dirs: []string{dir}})
	h.Cleanup(func() { harness.ClearNetwork(t) })
	h.Cleanup(func() { h.must(tree.Remove(context.Background(), dir)) }) // somebody beside this test may have a copy of the host's mounts for a moment
	h.must(os.MkdirAll(filepath.Join(dir, "conf"), 0o755))
	// Which ranges there are UpdatePodCIDR says.
	h.must(os.WriteFile(filepath.Join(dir, "conf", "10-pods.conflist"), fmt.Appendf(nil, `{"cniVersion": "1.0.0", "name": "pods", "plugins": [
		{"type": "ptp", "ipMasq": true, "capabilities": {"ipRanges": true}, "ipam": {"type": "host-local", "dataDir": %q, "routes": [{"dst": "0.0.0.0/0"}]}},
		{"type": "portmap", "capabilities": {"portMappings": true}, "snat": true}]}`, filepath.Join(dir, "ipam")), 0o644))
	h.db, _, err = state.Open(state.Config{Path: filepath.Join(dir, "state.db")})
	h.must(err)
	h.Cleanup(func() { h.must(h.db.Close()) })
	h.Network = open(h)
	h.must(h.UpdatePodCIDR(t.Context(), []netip.Prefix{firstRange}))
	h.Cleanup(func() {
		h.must(h.Remove(context.WithoutCancel(h.Context()))) // the test's context has ended by now
		h.Close()
	})
	return h
}

func (h *testHost) bridge() bridge.Config {
	return bridge.Config{DB: h.db, Network: podnet.Network{Name: "mpc0", Ranges: []netip.Prefix{firstRange}}, Log: h.logger()}
}

func (h *testHost) cni() cni.Config {
	return cni.Config{DB: h.db, ConfDir: filepath.Join(h.dir, "conf"), BinDirs: []string{"/usr/lib/cni"}, CacheDir: filepath.Join(h.dir, "cache"), Log: h.logger()}
}

func (h *testHost) choice(mode string) network.Network {
	h.Helper()
	n, err := choice.New(h.Context(), choice.Config{Mode: mode, Bridge: h.bridge(), CNI: h.cni(), Log: h.logger()})
	h.must(err)
	h.must(n.Start(h.Context()))
	return n
}

func (h *testHost) logger() *slog.Logger { return slog.New(slog.NewTextHandler(h.Output(), nil)) }

func (h *testHost) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// restart ends the process, as far as the network is concerned, and begins another one.
func (h *testHost) restart() {
	h.Helper()
	h.Close()
	h.Network = h.open(h)
}

// sandbox makes a network namespace, and returns its path.
func (h *testHost) sandbox(name string) string {
	h.Helper()
	path := h.path(name)
	harness.PinNetNS(h, path)
	return path
}

func (h *testHost) path(name string) string { return filepath.Join(h.dir, "ns-"+name) }

func (h *testHost) request(id string, ports ...network.HostPort) network.Request {
	return network.Request{SandboxID: ids.SandboxID(id), NetNS: h.path(id), HostPorts: ports, Pod: network.PodInfo{Namespace: "default", Name: id, UID: id}}
}

// setup connects a sandbox, which there is.
func (h *testHost) setup(id string, ports ...network.HostPort) network.Result {
	h.Helper()
	res, err := h.Setup(h.Context(), h.request(id, ports...))
	h.must(err)
	return res
}

// connect makes a sandbox, and connects it.
func (h *testHost) connect(id string, ports ...network.HostPort) network.Result {
	h.Helper()
	h.sandbox(id)
	return h.setup(id, ports...)
}

// addresses are those that a sandbox's interface has, link-local ones left out; up says whether loopback is up.
func (h *testHost) addresses(id string) (all []netip.Addr, up bool) {
	h.Helper()
	h.must(harness.InNetNS(h.path(id), func() error {
		lo, err := net.InterfaceByName("lo")
		if err != nil {
			return err
		}
		up = lo.Flags&net.FlagUp != 0
		link, err := netlink.LinkByName(network.InterfaceName)
		if err != nil {
			return nil // there is none
		}
		found, err := netlink.AddrList(link, unix.AF_UNSPEC)
		for _, a := range found {
			if ip, ok := netip.AddrFromSlice(a.IP); ok && !ip.IsLinkLocalUnicast() {
				all = append(all, ip.Unmap())
			}
		}
		return err
	}))
	return all, up
}

// wantConnected: the sandbox has what Setup has said.
func (h *testHost) wantConnected(id string, res network.Result) {
	h.Helper()
	if got, up := h.addresses(id); !slices.Equal(got, res.IPs) || !up {
		h.Errorf("%s has the addresses %v, loopback is up: %v; Setup has said %+v", id, got, up, res)
	}
}

// wantDisconnected waits until the sandbox has no interface any more.
func (h *testHost) wantDisconnected(id string) {
	h.Helper()
	harness.Eventually(h, "the interface of "+id+" is gone", func() (bool, string) {
		got, _ := h.addresses(id)
		return len(got) == 0, fmt.Sprint(got)
	})
}

// serve has a sandbox answer at TCP port 80 with its name.
func (h *testHost) serve(id string) {
	h.Helper()
	var l net.Listener
	h.must(harness.InNetNS(h.path(id), func() (err error) {
		l, err = net.Listen("tcp", ":80")
		return err
	}))
	var done sync.WaitGroup
	done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, id)
			c.Close()
		}
	})
	h.Cleanup(func() { l.Close(); done.Wait() })
}

// ask says who answers, as seen from a sandbox, or from the host (""); nobody: "".
func (h *testHost) ask(from, addr string) (who string) {
	h.Helper()
	dial := func() error {
		c, err := net.DialTimeout("tcp", addr, 5*time.Second*harness.SlowFactor())
		if err != nil {
			return nil // nobody answers
		}
		defer c.Close()
		raw, _ := io.ReadAll(c)
		who = string(raw)
		return nil
	}
	if from == "" {
		h.must(dial())
	} else {
		h.must(harness.InNetNS(h.path(from), dial))
	}
	return who
}

func TestSetup(t *testing.T) {
	contract(t, func(h *testHost) {
		h.must(h.Status(h.Context()))
		a, b := h.connect("a"), h.connect("b")
		for id, res := range map[string]network.Result{"a": a, "b": b} {
			h.wantConnected(id, res)
			if len(res.IPs) == 0 || !firstRange.Contains(res.IPs[0]) || res.Interface != network.InterfaceName || !firstRange.Contains(res.Gateway) {
				h.Errorf("%s: %+v", id, res)
			}
		}
		if a.IPs[0] == b.IPs[0] {
			h.Errorf("both have %s", a.IPs[0])
		}
		h.serve("a")
		for _, from := range []string{"b", ""} {
			if who := h.ask(from, netip.AddrPortFrom(a.IPs[0], 80).String()); who != "a" {
				h.Errorf("%q asks a, %q answers", from, who)
			}
		}
		// Again: the same. What was returned is the caller's, who may do with it as he likes.
		want := slices.Clone(a.IPs)
		a.IPs[0] = netip.Addr{}
		for range 2 {
			if again := h.setup("a"); !slices.Equal(again.IPs, want) {
				h.Errorf("a has %v now, it had %v", again.IPs, want)
			}
		}
		if who := h.ask("b", netip.AddrPortFrom(want[0], 80).String()); who != "a" {
			h.Errorf("b asks a once more, %q answers", who)
		}
		h.must(h.Status(h.Context()))
	})
}

func TestSetupErrors(t *testing.T) {
	contract(t, func(h *testHost) {
		h.sandbox("a")
		for what, c := range map[string]struct {
			change func(*network.Request)
			is     func(error) bool
		}{
			"no id":        {func(r *network.Request) { r.SandboxID = "" }, errdefs.IsInvalidArgument},
			"no path":      {func(r *network.Request) { r.NetNS = "" }, errdefs.IsInvalidArgument},
			"nothing":      {func(r *network.Request) { r.NetNS = h.path("none") }, errdefs.IsNotFound},
			"a plain file": {func(r *network.Request) { r.NetNS = filepath.Join(h.dir, "state.db") }, errdefs.IsNotFound},
		} {
			req := h.request("a")
			c.change(&req)
			if _, err := h.Setup(h.Context(), req); !c.is(err) {
				h.Errorf("%s: %v", what, err)
			}
			if got, _ := h.addresses("a"); len(got) > 0 {
				h.Errorf("%s: a has %v", what, got)
			}
		}
		h.wantConnected("a", h.setup("a")) // nothing is in the way
	})
}

func TestHostPorts(t *testing.T) {
	contract(t, func(h *testHost) {
		port := network.HostPort{Protocol: "TCP", HostPort: 8080, ContainerPort: 80}
		h.sandbox("a")
		ports := []network.HostPort{port}
		first := h.setup("a", ports...)
		ports[0].HostPort = 9090 // the request is the caller's
		if again := h.setup("a", port); !slices.Equal(again.IPs, first.IPs) {
			h.Errorf("a has %v, it had %v", again.IPs, first.IPs)
		}
		h.serve("a")
		if who := h.ask("", "127.0.0.1:8080"); who != "a" {
			h.Errorf("%q answers at the host port of a", who)
		}
		h.must(h.Teardown(h.Context(), "a"))
		h.connect("b", port) // it is free at once
		h.serve("b")
		if who := h.ask("", "127.0.0.1:8080"); who != "b" {
			h.Errorf("%q answers at the host port of b", who)
		}
	})
}

func TestTeardown(t *testing.T) {
	contract(t, func(h *testHost) {
		h.connect("a")
		b := h.connect("b")
		gone, cancel := context.WithCancel(h.Context())
		cancel()
		for range 3 { // and again, also when its client has gone
			h.must(h.Teardown(gone, "a"))
		}
		h.wantDisconnected("a")
		h.wantConnected("b", b)
		h.must(h.Teardown(h.Context(), "nobody"))
		// The same once more.
		h.wantConnected("a", h.setup("a"))
		// A namespace that is gone before.
		harness.DropNetNS(h, h.path("a"))
		h.must(h.Teardown(h.Context(), "a"))
		h.must(h.Teardown(h.Context(), "a"))
		h.sandbox("a")
		h.wantConnected("a", h.setup("a"))
	})
}

func TestRestart(t *testing.T) {
	contract(t, func(h *testHost) {
		a, b := h.connect("a"), h.connect("b")
		h.restart()
		h.wantConnected("a", a)
		h.must(h.Reconcile(h.Context(), map[ids.SandboxID]string{"a": h.path("a"), "b": h.path("b")}))
		h.must(h.Status(h.Context()))
		for id, res := range map[string]network.Result{"a": a, "b": b} {
			if again := h.setup(id); !reflect.DeepEqual(again, res) {
				h.Errorf("%s: %+v, before the restart %+v", id, again, res)
			}
			h.wantConnected(id, res)
		}
		if c := h.connect("c"); slices.Contains([]netip.Addr{a.IPs[0], b.IPs[0]}, c.IPs[0]) {
			h.Errorf("c has %s, which is another's", c.IPs[0])
		}
		h.must(h.Teardown(h.Context(), "a"))
		h.wantDisconnected("a")
		h.wantConnected("b", b)
	})
}

// What nobody knows of any more goes with the next process; what lives stays, whether it is to be found or not.
func TestLeftovers(t *testing.T) {
	contract(t, func(h *testHost) {
		port := network.HostPort{Protocol: "TCP", HostPort: 8080, ContainerPort: 80}
		a, b := h.connect("a"), h.connect("b")
		h.connect("left", port)
		h.connect("lost")
		harness.DropNetNS(h, h.path("lost"))
		h.restart()
		for range 2 {
			h.must(h.Reconcile(h.Context(), map[ids.SandboxID]string{"a": h.path("a"), "b": ""}))
		}
		h.wantDisconnected("left")
		h.wantConnected("a", a)
		h.wantConnected("b", b)
		for id, res := range map[string]network.Result{"a": a, "b": b} {
			if again := h.setup(id); !slices.Equal(again.IPs, res.IPs) {
				h.Errorf("%s has %v, it had %v", id, again.IPs, res.IPs)
			}
		}
		h.connect("new", port) // what was left has none
		h.serve("new")
		if who := h.ask("", "127.0.0.1:8080"); who != "new" {
			h.Errorf("%q answers at the host port of new", who)
		}
	})
}

func TestRanges(t *testing.T) {
	contract(t, func(h *testHost) {
		a := h.connect("a")
		if err := h.UpdatePodCIDR(h.Context(), []netip.Prefix{{}}); !errdefs.IsInvalidArgument(err) {
			h.Errorf("what is no range: %v", err)
		}
		if b := h.connect("b"); !firstRange.Contains(b.IPs[0]) {
			h.Errorf("b has %s, though nothing was changed", b.IPs[0])
		}
		for range 2 {
			h.must(h.UpdatePodCIDR(h.Context(), []netip.Prefix{secondRange}))
		}
		c := h.connect("c")
		h.restart()
		h.must(h.Reconcile(h.Context(), map[ids.SandboxID]string{"a": h.path("a"), "b": h.path("b"), "c": h.path("c")}))
		d := h.connect("d")
		for id, res := range map[string]network.Result{"c": c, "d": d} {
			if !secondRange.Contains(res.IPs[0]) {
				h.Errorf("%s has %s, not one of %s", id, res.IPs[0], secondRange)
			}
		}
		h.wantConnected("a", a)
		h.serve("a")
		if who := h.ask("d", netip.AddrPortFrom(a.IPs[0], 80).String()); who != "a" {
			h.Errorf("d asks a, which has an address of the range of before: %q answers", who)
		}
	})
}

func TestInterfaceStats(t *testing.T) {
	contract(t, func(h *testHost) {
		a := h.connect("a")
		h.sandbox("stranger")
		h.connect("gone")
		h.must(h.Teardown(h.Context(), "gone"))
		harness.DropNetNS(h, h.path("gone"))
		all := map[ids.SandboxID]string{"a": h.path("a"), "stranger": h.path("stranger"), "gone": h.path("gone"), "none": h.path("none")}
		read := func() network.InterfaceStat {
			h.Helper()
			got, err := h.InterfaceStats(h.Context(), all)
			if err != nil || len(got) != 1 || len(got["a"]) != 1 || got["a"][0].Name != network.InterfaceName {
				h.Fatalf("%+v, %v", got, err)
			}
			defer clear(got) // it is the caller's
			return got["a"][0]
		}
		before := read()
		h.serve("a")
		h.ask("", netip.AddrPortFrom(a.IPs[0], 80).String())
		if after := read(); after.RxPackets <= before.RxPackets || after.TxBytes <= before.TxBytes {
			h.Errorf("%+v after somebody has asked, before %+v", after, before)
		}
	})
}

// Of those who come at once each sandbox has an address of its own, and those who come for one sandbox have the same.
func TestManyAtOnce(t *testing.T) {
	contract(t, func(h *testHost) {
		self := fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid()) // plugins are run in the namespace of the thread
		const sandboxes, each = 6, 2
		for i := range sandboxes {
			h.sandbox(fmt.Sprint("s", i))
		}
		all := func(do func(i, j int) error) {
			h.Helper()
			var wg sync.WaitGroup
			for i := range sandboxes * each {
				wg.Go(func() {
					if err := harness.InNetNS(self, func() error { return do(i/each, i%each) }); err != nil {
						h.Error(err)
					}
				})
			}
			wg.Wait()
		}
		var got [sandboxes][each]netip.Addr
		all(func(i, j int) error {
			res, err := h.Setup(h.Context(), h.request(fmt.Sprint("s", i)))
			if err == nil {
				got[i][j] = res.IPs[0]
			}
			return err
		})
		seen := map[netip.Addr]bool{}
		for i, of := range got {
			if of[0] != of[1] || seen[of[0]] {
				h.Errorf("s%d: %v; all: %v", i, of, got)
			}
			seen[of[0]] = true
		}
		all(func(i, _ int) error { return h.Teardown(h.Context(), ids.SandboxID(fmt.Sprint("s", i))) })
		for i := range sandboxes {
			h.wantDisconnected(fmt.Sprint("s", i))
		}
	})
}

func TestRemove(t *testing.T) {
	contract(t, func(h *testHost) {
		h.connect("a")
		h.connect("b")
		h.connect("lost")
		harness.DropNetNS(h, h.path("lost"))
		for range 2 {
			h.must(h.Remove(h.Context()))
		}
		for _, id := range []string{"a", "b"} {
			h.wantDisconnected(id)
		}
		harness.Eventually(h, "the host has no interface of the network", func() (bool, string) {
			links, err := netlink.LinkList()
			h.must(err)
			var names []string
			for _, l := range links {
				names = append(names, l.Attrs().Name)
			}
			return slices.Equal(names, []string{"lo"}), fmt.Sprint(names)
		})
	})
}
