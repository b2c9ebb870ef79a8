package bridge

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
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

// connectPorts connects a sandbox with host ports.
func (h *testHost) connectPorts(b *Bridge, id, path string, ports ...network.HostPort) []netip.Addr {
	h.t.Helper()
	res, err := b.Setup(h.t.Context(), network.Request{SandboxID: ids.SandboxID(id), NetNS: path, HostPorts: ports, Pod: network.PodInfo{Namespace: "space", Name: "pod-" + id}})
	h.must(err)
	return res.IPs
}

func TestHostPortsTCP(t *testing.T) {
	h := newHost(t)
	outside, host, machine := h.outside("192.168.77.0/30")
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: testRanges}})
	server, client, atOne := h.sandbox("server"), h.sandbox("client"), h.sandbox("at-one")
	gateway := lease.GatewayOf(testRanges[0])
	ip := h.connectPorts(b, "server", server, network.HostPort{Protocol: "TCP", HostPort: 8080, ContainerPort: 80}, network.HostPort{Protocol: "TCP", HostPort: 8081, ContainerPort: 80})[0]
	other := h.connectPorts(b, "client", client)[0]
	h.connectPorts(b, "at-one", atOne, network.HostPort{Protocol: "TCP", HostIP: host, HostPort: 9090, ContainerPort: 80}, network.HostPort{Protocol: "TCP", HostIP: netip.MustParseAddr("127.0.0.1"), HostPort: 9091, ContainerPort: 80})
	h.serve(server, "0.0.0.0:80")
	h.serve(atOne, "0.0.0.0:80")

	for _, c := range []struct {
		name, from, to string
		seen           netip.Addr // as whom the server sees the client
	}{
		{"from outside", outside, host.String() + ":8080", machine},
		{"a second host port to the same port", outside, host.String() + ":8081", machine},
		{"from the host, by its address", "", host.String() + ":8080", host},
		{"from the host, by its loopback address", "", "127.0.0.1:8080", gateway},
		{"from the host, by another loopback address", "", "127.1.2.3:8080", gateway},
		{"from the host, by the gateway's address", "", gateway.String() + ":8080", gateway},
		{"from a pod, by the host's address", client, host.String() + ":8080", gateway},
		{"from a pod, by the gateway's address", client, gateway.String() + ":8080", gateway},
		{"from the pod itself", server, host.String() + ":8080", gateway},
		{"from a pod, directly", client, ip.String() + ":80", other},
		{"at one address", outside, host.String() + ":9090", machine},
		{"at one address, from the host", "", host.String() + ":9090", host},
		{"at the loopback address", "", "127.0.0.1:9091", gateway},
	} {
		if seen, err := h.tryAsk(c.from, c.to); err != nil || seen != c.seen {
			t.Errorf("%s: seen as %s (%v), want %s", c.name, seen, err, c.seen)
		}
	}
	for name, c := range map[string][2]string{
		"at another address than the given one": {"", "127.0.0.1:9090"},
		"at the gateway, not the given one":     {client, gateway.String() + ":9090"},
		"the loopback address, from outside":    {outside, host.String() + ":9091"},
		"a port that is not mapped":             {outside, host.String() + ":8082"},
	} {
		if !h.silent(c[0], c[1]) {
			t.Errorf("%s: answered", name)
		}
	}

	h.must(b.Teardown(t.Context(), "server"))
	if !h.silent(outside, host.String()+":8080") {
		t.Error("after Teardown: answered")
	}
	// The port is free for the next one.
	next := h.sandbox("next")
	h.connectPorts(b, "next", next, network.HostPort{Protocol: "TCP", HostPort: 8080, ContainerPort: 80})
	h.serve(next, "0.0.0.0:80")
	if _, err := h.tryAsk(outside, host.String()+":8080"); err != nil {
		t.Error(err)
	}
}

// A pod reaches nothing of the host's loopback, although the host's loopback reaches the pods' host ports.
func TestLoopbackIsGuarded(t *testing.T) {
	h := newHost(t)
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: testRanges}})
	pod := h.sandbox("pod")
	h.connectPorts(b, "pod", pod, network.HostPort{Protocol: "TCP", HostPort: 8080, ContainerPort: 80})
	h.serve("", "127.0.0.1:7070")
	if _, err := h.tryAsk("", "127.0.0.1:7070"); err != nil {
		t.Fatal(err)
	}
	h.in(pod, func() error {
		// As a pod with CAP_NET_ADMIN would do it.
		if err := os.WriteFile("/proc/sys/net/ipv4/conf/eth0/route_localnet", []byte("1"), 0); err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		// No local address 127.0.0.1, and a route to it by the host.
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.AddrDel(lo, &netlink.Addr{IPNet: links.IPNet(netip.MustParsePrefix("127.0.0.1/8"))}); err != nil {
			return err
		}
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		gateway := lease.GatewayOf(testRanges[0])
		if err := netlink.RouteReplace(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: gateway.AsSlice()}); err != nil {
			return err
		}
		if err := netlink.NeighSet(&netlink.Neigh{LinkIndex: eth0.Attrs().Index, IP: gateway.AsSlice(), State: netlink.NUD_PERMANENT, HardwareAddr: links.MACOf(gateway)}); err != nil {
			return err
		}
		h.must(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Usec: 300_000}))
		if err := unix.Connect(fd, &unix.SockaddrInet4{Port: 7070, Addr: [4]byte{127, 0, 0, 1}}); err == nil {
			t.Error("a pod has reached the host's loopback")
		}
		return nil
	})
}

func TestHostPortsUDP(t *testing.T) {
	h := newHost(t)
	outside, host, machine := h.outside("192.168.77.0/30")
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: testRanges}})
	one := h.sandbox("one")
	// A client that began to send before there was a pod, and goes on: its flow must not stick to what was there before.
	client := h.udpClient(outside, netip.AddrPortFrom(host, 5353))
	h.serveUDP("", "host", "0.0.0.0:5353")
	if got := h.askUDP(client); got != "host "+machine.String() {
		t.Fatalf("the host's own server: %q", got)
	}
	h.connectPorts(b, "one", one, network.HostPort{Protocol: "UDP", HostPort: 5353, ContainerPort: 53})
	h.serveUDP(one, "one", "0.0.0.0:53")
	if got := h.askUDP(client); got != "one "+machine.String() {
		t.Errorf("when the port is given: %q", got)
	}
	h.must(b.Teardown(t.Context(), "one"))
	two := h.sandbox("two")
	h.connectPorts(b, "two", two, network.HostPort{Protocol: "UDP", HostIP: host, HostPort: 5353, ContainerPort: 54})
	h.serveUDP(two, "two", "0.0.0.0:54")
	if got := h.askUDP(client); got != "two "+machine.String() {
		t.Errorf("when the port is given to another: %q", got)
	}
	h.must(b.Teardown(t.Context(), "two"))
	if got := h.askUDP(client); got != "host "+machine.String() {
		t.Errorf("when the port is taken: %q", got)
	}
}

// SCTP needs no SCTP in the kernel to be translated: a packet made by hand arrives at the pod, at the pod's port.
func TestHostPortsSCTP(t *testing.T) {
	h := newHost(t)
	outside, host, _ := h.outside("192.168.77.0/30")
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: testRanges}})
	pod := h.sandbox("pod")
	ip := h.connectPorts(b, "pod", pod, network.HostPort{Protocol: "SCTP", HostPort: 3868, ContainerPort: 3869})[0]
	var l *net.IPConn
	h.in(pod, func() (err error) {
		l, err = net.ListenIP("ip4:132", &net.IPAddr{IP: ip.AsSlice()})
		return err
	})
	defer l.Close()
	h.in(outside, func() error {
		c, err := net.DialIP("ip4:132", nil, &net.IPAddr{IP: host.AsSlice()})
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(sctpInit(40000, 3868))
		return err
	})
	h.must(l.SetReadDeadline(time.Now().Add(time.Minute)))
	buf := make([]byte, 1500)
	n, _, err := l.ReadFrom(buf)
	if err != nil || n < 12 {
		t.Fatalf("no SCTP packet has come: %d, %v", n, err)
	}
	if port := binary.BigEndian.Uint16(buf[2:]); port != 3869 {
		t.Errorf("it came to port %d", port)
	}
}

// sctpInit is an INIT packet (RFC 9260, 3.3.2).
func sctpInit(from, to uint16) []byte {
	p := make([]byte, 32)
	binary.BigEndian.PutUint16(p, from)
	binary.BigEndian.PutUint16(p[2:], to)
	p[12] = 1                                // INIT
	binary.BigEndian.PutUint16(p[14:], 20)   // its length
	binary.BigEndian.PutUint32(p[16:], 4711) // initiate tag
	binary.BigEndian.PutUint32(p[20:], 65536)
	binary.BigEndian.PutUint16(p[24:], 1)
	binary.BigEndian.PutUint16(p[26:], 1)
	binary.LittleEndian.PutUint32(p[8:], crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)))
	return p
}

func TestHostPortConflicts(t *testing.T) {
	h := newHost(t)
	db := h.openDB("state.db")
	cfg := Config{DB: db, Network: podnet.Network{Name: "mpt0", Ranges: testRanges}}
	b := h.bridge(cfg)
	one := h.sandbox("one")
	h.connectPorts(b, "one", one, network.HostPort{Protocol: "TCP", HostPort: 80, ContainerPort: 8080}, network.HostPort{Protocol: "TCP", HostIP: netip.MustParseAddr("127.0.0.1"), HostPort: 81, ContainerPort: 8080})
	two := h.sandbox("two")
	try := func(b *Bridge, ports ...network.HostPort) error {
		_, err := b.Setup(t.Context(), network.Request{SandboxID: "two", NetNS: two, HostPorts: ports})
		return err
	}
	for range 2 {
		for _, p := range []network.HostPort{{Protocol: "TCP", HostPort: 80, ContainerPort: 1}, {Protocol: "TCP", HostIP: netip.MustParseAddr("127.0.0.1"), HostPort: 80, ContainerPort: 1}, {Protocol: "TCP", HostPort: 81, ContainerPort: 1}, {Protocol: "TCP", HostIP: netip.MustParseAddr("127.0.0.1"), HostPort: 81, ContainerPort: 1}} {
			err := try(b, p)
			if !errdefs.IsAlreadyExists(err) || !strings.Contains(err.Error(), fmt.Sprintf("port %d belongs to pod space/pod-one", p.HostPort)) {
				t.Errorf("%s: %v", p, err)
			}
		}
		if n := b.ledger.InUse(); n != 1 {
			t.Errorf("%d sandboxes have addresses", n)
		}
		// The ports are taken still after a restart.
		b = h.bridge(cfg)
	}
	if err := try(b, network.HostPort{Protocol: "TCP", HostIP: netip.MustParseAddr("fd00::1"), HostPort: 82, ContainerPort: 1}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("an IPv6 host address for a pod without IPv6: %v", err)
	}
	h.must(try(b, network.HostPort{Protocol: "UDP", HostPort: 80, ContainerPort: 1}, network.HostPort{Protocol: "TCP", HostIP: netip.MustParseAddr("127.0.0.2"), HostPort: 81, ContainerPort: 1}))
	if err := try(b, network.HostPort{Protocol: "UDP", HostPort: 81, ContainerPort: 1}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("other ports for a connected sandbox: %v", err)
	}
	h.must(b.Teardown(t.Context(), "one"))
	h.must(b.Teardown(t.Context(), "two"))
	h.must(try(b, network.HostPort{Protocol: "TCP", HostPort: 80, ContainerPort: 1}))
}

// Host ports survive a restart, and somebody's flush of the rule set.
func TestHostPortsAreRestored(t *testing.T) {
	h := newHost(t)
	cfg := Config{DB: h.openDB("state.db"), Network: podnet.Network{Name: "mpt0", Ranges: testRanges}}
	b := h.bridge(cfg)
	pod, gone := h.sandbox("pod"), h.sandbox("gone")
	h.connectPorts(b, "pod", pod, network.HostPort{Protocol: "TCP", HostPort: 8080, ContainerPort: 80})
	h.connectPorts(b, "gone", gone, network.HostPort{Protocol: "TCP", HostPort: 8081, ContainerPort: 80})
	h.serve(pod, "0.0.0.0:80")
	h.serve(gone, "0.0.0.0:80")
	reaches := func(when string, port int, want bool) {
		t.Helper()
		if addr := fmt.Sprintf("127.0.0.1:%d", port); !want && !h.silent("", addr) {
			t.Errorf("%s: port %d answers", when, port)
		} else if _, err := h.tryAsk("", addr); want && err != nil {
			t.Errorf("%s: port %d: %v", when, port, err)
		}
	}
	reaches("at first", 8080, true)
	reaches("at first", 8081, true)
	conn, err := nftables.New()
	h.must(err)
	h.unwatched(b) // TestFlushedRulesAreRepaired is about the watcher
	conn.FlushRuleset()
	h.must(conn.Flush())
	reaches("flushed", 8080, false)
	h.must(b.Status(t.Context()))
	reaches("repaired", 8080, true)
	// Only the elements are gone.
	conn.FlushSet(&nftables.Set{Name: "any4", Table: &nftables.Table{Name: "mpt0", Family: nftables.TableFamilyINet}})
	h.must(conn.Flush())
	reaches("emptied", 8080, false)
	h.must(b.Status(t.Context()))
	reaches("repaired", 8080, true)

	conn.FlushRuleset()
	h.must(conn.Flush())
	after := h.bridge(cfg)
	reaches("restarted", 8080, true)
	h.must(after.Reconcile(t.Context(), map[ids.SandboxID]string{"pod": pod}))
	reaches("reconciled", 8080, true)
	reaches("reconciled", 8081, false)
	// A map that was changed behind our back is no obstacle.
	conn.FlushRuleset()
	h.must(conn.Flush())
	h.must(after.Teardown(t.Context(), "pod"))
	reaches("torn down", 8080, false)
}

// TestTheNodesOwnPorts: a pod that asks for a port at which the node serves is refused, and one that has it from before that was so leads nobody to it.
func TestTheNodesOwnPorts(t *testing.T) {
	h := newHost(t)
	outside, host, _ := h.outside("192.168.77.0/30")
	cfg := Config{Network: podnet.Network{Name: "mpt0", Ranges: testRanges}, DB: h.openDB("one.db")}
	b := h.bridge(cfg)
	thief := h.sandbox("thief")
	ports := []network.HostPort{{Protocol: "TCP", HostPort: 6443, ContainerPort: 80}, {Protocol: "TCP", HostIP: host, HostPort: 10250, ContainerPort: 80}, {Protocol: "TCP", HostPort: 8080, ContainerPort: 80}}
	h.connectPorts(b, "thief", thief, ports...)
	h.serve(thief, "0.0.0.0:80")
	reached := func(own bool) {
		t.Helper()
		for _, from := range []string{outside, "", thief} {
			for port, want := range map[string]bool{"6443": own, "10250": own, "8080": true} {
				if _, err := h.tryAskIf(want, from, host.String()+":"+port); (err == nil) != want {
					t.Errorf("from %q: the pod is reached by port %s: %v, want %v", from, port, err, want)
				}
			}
		}
	}
	reached(true)

	cfg.OwnPorts = []network.OwnPort{{Protocol: "TCP", Port: 6443, Of: "the API server's"}, {Protocol: "TCP", Port: 10250, Of: "the agent's"}}
	b = h.bridge(cfg)
	reached(false)
	h.must(b.Reconcile(t.Context(), map[ids.SandboxID]string{"thief": thief}))
	h.connectPorts(b, "thief", thief, ports...) // it lives on
	reached(false)
	h.serve("", "127.0.0.1:6443")
	if seen, err := h.tryAsk("", "127.0.0.1:6443"); err != nil || !seen.IsLoopback() {
		t.Errorf("the host asks its own port 6443: seen as %s (%v)", seen, err)
	}
	// The next one does not get it, and the message says whose it is.
	h.must(b.Teardown(t.Context(), "thief"))
	next := h.sandbox("next")
	for _, p := range ports[:2] {
		b.Prepare(t.Context(), network.Request{SandboxID: "next", NetNS: next, HostPorts: []network.HostPort{p}})
		_, err := b.Setup(t.Context(), network.Request{SandboxID: "next", NetNS: next, HostPorts: []network.HostPort{p}})
		if !errdefs.IsAlreadyExists(err) || !strings.Contains(err.Error(), fmt.Sprintf("port %d is the ", p.HostPort)) || b.Has("next") {
			t.Errorf("the host port %s: %v", p, err)
		}
	}
	h.connectPorts(b, "next", next, network.HostPort{Protocol: "UDP", HostPort: 6443, ContainerPort: 80})
}

// TestListenersAreTold: where a process of the host listens a mapped port wins, and the log names the process.
func TestListenersAreTold(t *testing.T) {
	h := newHost(t)
	var said strings.Builder
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: testRanges}, Log: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	h.serve("", "0.0.0.0:8080")
	h.serve("", "127.0.0.1:8081")
	h.connectPorts(b, "pod", h.sandbox("pod"), network.HostPort{Protocol: "TCP", HostPort: 8080, ContainerPort: 80}, network.HostPort{Protocol: "TCP", HostPort: 8081, ContainerPort: 80}, network.HostPort{Protocol: "TCP", HostPort: 8082, ContainerPort: 80})
	if got := said.String(); strings.Count(got, "listens at a host port") != 1 || !strings.Contains(got, ":8080") || !strings.Contains(got, fmt.Sprint(os.Getpid())) || !strings.Contains(got, "space/pod-pod") {
		t.Errorf("said: %s", got)
	}
}

// TestInvalidSegmentsResetNoHostPort: what connection tracking takes for invalid, from a pod or for a host port, resets no connection to the host port.
func TestInvalidSegmentsResetNoHostPort(t *testing.T) {
	h := newHost(t)
	outside, host, _ := h.outside("192.168.77.0/30")
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: testRanges}})
	server, client := h.sandbox("server"), h.sandbox("client")
	h.connectPorts(b, "server", server, network.HostPort{Protocol: "TCP", HostPort: 8080, ContainerPort: 80}, network.HostPort{Protocol: "TCP", HostIP: host, HostPort: 8081, ContainerPort: 80})
	h.connectPorts(b, "client", client)
	var l net.Listener
	h.at(server, func() (err error) { l, err = net.Listen("tcp4", "0.0.0.0:80"); return err })
	t.Cleanup(func() { l.Close() })
	for _, from := range []string{outside, client, ""} {
		for _, port := range []string{":8080", ":8081"} {
			var c, s net.Conn
			h.at(from, func() (err error) { c, err = net.DialTimeout("tcp", host.String()+port, time.Minute); return err })
			s, err := l.Accept()
			h.must(err)
			harness.Stray(t, server, s)
			harness.Stray(t, from, c)
			for range 2 { // what resets a connection is here before the second answer
				for _, way := range [][2]net.Conn{{c, s}, {s, c}} {
					h.must(way[1].SetReadDeadline(time.Now().Add(10 * time.Second * harness.SlowFactor())))
					if _, err := way[0].Write([]byte("x")); err != nil {
						t.Errorf("from %q to %s: %v", from, port, err)
					} else if _, err := way[1].Read(make([]byte, 1)); err != nil {
						t.Errorf("from %q to %s: %v", from, port, err)
					}
				}
			}
			c.Close()
			s.Close()
		}
	}
}
