package bridge

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/podnet"
	"monopod.dev/monopod/test/harness"
)

// dialMany opens connections until there are so many, or full says that one was refused.
func (h *testHost) dialMany(path, addr string, many int, full func() bool) (open []net.Conn, refused bool) {
	h.t.Helper()
	for len(open) < many {
		ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
		answer := make(chan net.Conn, 1)
		go func() {
			defer close(answer)
			_ = harness.InNetNS(path, func() error {
				c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
				if err == nil {
					answer <- c
				}
				return err
			})
		}()
		var c net.Conn
		var answered bool
		for !answered {
			select {
			case c = <-answer:
				answered = true
			case <-time.After(20 * time.Millisecond):
				if refused = full(); refused {
					cancel()
				}
			}
		}
		cancel()
		if c == nil {
			return open, refused
		}
		open = append(open, c)
	}
	return open, false
}

// isFull says that an address was refused a connection.
func (h *testHost) isFull(b *Bridge, a netip.Addr) bool {
	h.t.Helper()
	all, _, err := b.rules.Full()
	h.must(err)
	return slices.Contains(all, a)
}

// TestAPodCannotTakeAllConnections: a pod that opens more and more is refused new ones, at what it may have and not before; another pod and the host connect all the same,
// and what ends makes room. The log says so, and names the pod.
func TestAPodCannotTakeAllConnections(t *testing.T) {
	h := newHost(t)
	outside, host, machine := h.outside("192.168.77.0/30")
	const limit = 256
	var said strings.Builder
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: ranges("10.201.0.0/24", "fd00:201::/64")}, ConnectionsPerPod: new(int32(limit)),
		Log: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	greedy, other := h.sandbox("greedy"), h.sandbox("other")
	var addresses []netip.Addr
	for id, path := range map[string]string{"greedy": greedy, "other": other} {
		res, err := b.Setup(t.Context(), network.Request{SandboxID: ids.SandboxID(id), NetNS: path, Pod: network.PodInfo{Namespace: "shop", Name: id}})
		h.must(err)
		if id == "greedy" {
			addresses = res.IPs
		}
	}
	h.serve(outside, machine.String()+":90")
	h.serve("", ":90")
	for i, server := range []struct{ path, addr string }{{outside, machine.String()}, {"", "[" + b.Gateways()[1].String() + "]"}} {
		to := server.addr + ":80"
		h.at(server.path, func() error { // its connections are open, whether or not somebody accepts them
			l, err := net.Listen("tcp", to)
			if err == nil {
				t.Cleanup(func() { l.Close() })
			}
			return err
		})
		open, refused := h.dialMany(greedy, to, 4*limit, func() bool { return h.isFull(b, addresses[i]) })
		t.Logf("%s: %d connections, then refused: %v", to, len(open), refused)
		if !refused || len(open) < limit {
			t.Errorf("%d connections to %s, refused then: %v; want %d at least, and then one refused", len(open), to, refused, limit)
		}
		h.ask(other, server.addr+":90")
		h.ask("", machine.String()+":90")
		h.ask(outside, host.String()+":90")
		h.must(b.Status(t.Context()))
		for _, c := range open {
			h.must(c.(*net.TCPConn).SetLinger(0))
			c.Close()
		}
		again, _ := h.dialMany(greedy, to, limit, func() bool { return false })
		if len(again) != limit {
			t.Errorf("%d connections to %s after the others have ended, not %d", len(again), to, limit)
		}
		for _, c := range again {
			c.Close()
		}
	}
	if got := said.String(); strings.Count(got, "as many connections open as it may") == 0 || !strings.Contains(got, "pod=shop/greedy") {
		t.Errorf("said: %s", got)
	}
	// What the kernel counts with can be read by who looks for the reason.
	if out, err := exec.CommandContext(t.Context(), "nft", "list", "table", "inet", "mpt0").CombinedOutput(); err == nil && !strings.Contains(string(out), "ct count over") {
		t.Errorf("nft shows no bound:\n%s", out)
	} else if err != nil && !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("nft: %v: %s", err, out)
	}
}

// TestConnectionsWithoutABound: with 0 there is no rule for it.
func TestConnectionsWithoutABound(t *testing.T) {
	h := newHost(t)
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: testRanges}, ConnectionsPerPod: new(int32(0))})
	h.must(b.Status(t.Context()))
	conn, err := nftables.New()
	h.must(err)
	chains, err := conn.ListChainsOfTableFamily(nftables.TableFamilyINet)
	h.must(err)
	for _, c := range chains {
		if c.Table.Name == b.name && c.Name == "connections" {
			t.Errorf("there is a chain %s", c.Name)
		}
	}
}

// TestConnectionsOfTheGoneGo: what a pod has left open, of which the kernel would know for days, is forgotten before another pod can have its address; that of others is not.
func TestConnectionsOfTheGoneGo(t *testing.T) {
	h := newHost(t)
	outside, _, machine := h.outside("192.168.77.0/30")
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: testRanges}})
	b.sandboxes.flows.crowded = func() bool { return true }
	h.at(outside, func() error {
		l, err := net.Listen("tcp", machine.String()+":80")
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
	tracked := map[string]int{}
	count := func() {
		clear(tracked)
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
		h.must(err)
		for _, f := range flows {
			tracked[f.Forward.SrcIP.String()]++
		}
	}
	one, two := h.sandbox("one"), h.sandbox("two")
	a1, a2 := h.setup(b, "one", one), h.setup(b, "two", two)
	for _, path := range []string{one, two} {
		open, _ := h.dialMany(path, machine.String()+":80", 5, func() bool { return false })
		for _, c := range open {
			t.Cleanup(func() { c.Close() })
		}
	}
	if count(); tracked[a1.String()] != 5 || tracked[a2.String()] != 5 {
		t.Fatalf("before: %v", tracked)
	}
	h.must(b.Teardown(t.Context(), "one"))
	h.inUse(b, "two")
	if count(); tracked[a1.String()] != 0 || tracked[a2.String()] != 5 {
		t.Errorf("after: %v", tracked)
	}
}
