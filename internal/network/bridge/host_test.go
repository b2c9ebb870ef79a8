package bridge

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network/links"
	"monopod.dev/monopod/internal/state"
	"monopod.dev/monopod/test/harness"
)

// testHost is a network namespace that plays the host: the test's goroutine is moved into it, so that bridges, rules
// and sysctls of a test never meet those of this machine. At the end it must look as it did at the start.
type testHost struct {
	t   testing.TB
	dir string
	// at work with a state file: a second one on the same host is a restarted process.
	running map[*state.DB]*Bridge
}

func newHost(t testing.TB) *testHost {
	t.Helper()
	harness.NewNetwork(t)
	dir, err := os.MkdirTemp("/tmp", "mpnet")
	if err != nil {
		t.Fatal(err)
	}
	h := &testHost{t: t, dir: dir, running: map[*state.DB]*Bridge{}}
	t.Cleanup(func() { h.must(tree.Remove(context.Background(), dir)) }) // somebody beside this test may have a copy of the host's mounts for a moment
	h.must(os.WriteFile(links.IPForwardFile, []byte("0\n"), 0))
	h.must(os.WriteFile(links.IP6ForwardFile, []byte("0\n"), 0))
	harness.CheckHost(t, harness.Place{Dirs: []string{h.dir}})
	before := h.look()
	t.Cleanup(func() {
		if after := h.look(); after != before {
			t.Errorf("left on the host:\n%s\nat the start there was:\n%s", after, before)
		}
	})
	return h
}

func (h *testHost) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// look tells all that a network may change on a host.
func (h *testHost) look() string {
	h.t.Helper()
	var s strings.Builder
	all, err := netlink.LinkList()
	h.must(err)
	for _, l := range all {
		fmt.Fprintln(&s, "link", l.Attrs().Name, l.Type())
	}
	addrs, err := netlink.AddrList(nil, unix.AF_UNSPEC)
	h.must(err)
	for _, a := range addrs {
		fmt.Fprintln(&s, "address", a.IPNet)
	}
	for _, way := range h.ways() {
		fmt.Fprintln(&s, "route", way)
	}
	conn, err := nftables.New()
	h.must(err)
	tables, err := conn.ListTables()
	h.must(err)
	for _, table := range tables {
		fmt.Fprintln(&s, "table", table.Family, table.Name)
	}
	for _, file := range []string{links.IPForwardFile, links.IP6ForwardFile} {
		on, err := links.Forwards(file)
		h.must(err)
		fmt.Fprintln(&s, file, on)
	}
	return s.String()
}

func (h *testHost) openDB(name string) *state.DB {
	h.t.Helper()
	db, _, err := state.Open(state.Config{Path: filepath.Join(h.dir, name)})
	h.must(err)
	h.t.Cleanup(func() { h.must(db.Close()) })
	return db
}

// bridge starts a network, which is removed at the end of the test.
func (h *testHost) bridge(cfg Config) *Bridge {
	h.t.Helper()
	if cfg.DB == nil {
		cfg.DB = h.openDB(cfg.Network.Name + ".db")
	}
	if before := h.running[cfg.DB]; before != nil {
		h.unwatched(before) // as if it had ended
	}
	b, err := New(h.t.Context(), cfg)
	h.must(err)
	h.must(b.Start(h.t.Context()))
	h.running[cfg.DB] = b
	h.t.Cleanup(func() {
		h.must(b.Remove(h.t.Context()))
		h.must(b.Remove(h.t.Context())) // idempotent
		if n := b.ledger.InUse(); n != 0 {
			h.t.Errorf("%d addresses are in use after Remove", n)
		}
		b.Close()
	})
	return b
}

// unwatched makes a network leave the rule set to itself, until the next Start or Status that repairs.
func (h *testHost) unwatched(b *Bridge) {
	b.host.mu.Lock()
	defer b.host.mu.Unlock()
	b.host.watcher.SetActive(false)
}

// sandbox makes a network namespace, pinned at the returned path.
func (h *testHost) sandbox(name string) string {
	h.t.Helper()
	path := filepath.Join(h.dir, name)
	harness.PinNetNS(h.t, path)
	return path
}

// drop ends a sandbox's namespace.
func (h *testHost) drop(path string) {
	h.t.Helper()
	harness.DropNetNS(h.t, path)
}

// in runs f on a thread of the namespace.
func (h *testHost) in(path string, f func() error) {
	h.t.Helper()
	h.must(harness.InNetNS(path, f))
}

// at runs f in a namespace; "" is the host.
func (h *testHost) at(path string, f func() error) {
	h.t.Helper()
	if path == "" {
		h.must(f())
		return
	}
	h.in(path, f)
}

// serve listens in a namespace and answers each connection with the address it comes from.
func (h *testHost) serve(path, addr string) {
	h.t.Helper()
	var l net.Listener
	h.at(path, func() (err error) {
		l, err = net.Listen("tcp", addr)
		return err
	})
	harness.EchoAddress(h.t, l)
}

// ask connects from a namespace and returns the address that the server saw.
func (h *testHost) ask(path, addr string) netip.Addr {
	h.t.Helper()
	seen, err := h.tryAsk(path, addr)
	h.must(err)
	return seen
}

// tryAsk is ask where no answer is no failure.
func (h *testHost) tryAsk(path, addr string) (seen netip.Addr, err error) {
	h.t.Helper()
	return h.askWithin(path, addr, 5*time.Second*harness.SlowFactor())
}

// silent says that nobody answers. What is dropped has no other sign than that.
func (h *testHost) silent(path, addr string) bool {
	h.t.Helper()
	_, err := h.askWithin(path, addr, 300*time.Millisecond*harness.SlowFactor())
	return err != nil
}

func (h *testHost) askWithin(path, addr string, limit time.Duration) (seen netip.Addr, err error) {
	h.t.Helper()
	h.at(path, func() error {
		var c net.Conn
		end := time.Now().Add(limit)
		if c, err = (&net.Dialer{Deadline: end}).Dial("tcp", addr); err != nil {
			return nil
		}
		defer c.Close()
		if err = c.SetDeadline(end); err != nil { // packets may be dropped from now on
			return nil
		}
		var raw []byte
		if raw, err = io.ReadAll(c); err != nil {
			return nil
		}
		var from netip.AddrPort
		from, err = netip.ParseAddrPort(string(raw))
		seen = from.Addr().Unmap()
		return nil
	})
	return seen, err
}

// serveUDP answers each datagram with a name and the address that it comes from.
func (h *testHost) serveUDP(path, name, addr string) {
	h.t.Helper()
	var l net.PacketConn
	h.at(path, func() (err error) {
		l, err = net.ListenPacket("udp", addr)
		return err
	})
	go func() {
		buf := make([]byte, 100)
		for {
			_, from, err := l.ReadFrom(buf)
			if err != nil {
				return
			}
			l.WriteTo([]byte(name+" "+from.(*net.UDPAddr).AddrPort().Addr().Unmap().String()), from)
		}
	}()
	h.t.Cleanup(func() { l.Close() })
}

// udpClient is a socket of a namespace that sends to one address only.
func (h *testHost) udpClient(path string, to netip.AddrPort) net.Conn {
	h.t.Helper()
	var c net.Conn
	h.at(path, func() (err error) {
		c, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		return err
	})
	h.t.Cleanup(func() { c.Close() })
	return c
}

// askUDP sends until there is an answer, at most a second.
func (h *testHost) askUDP(c net.Conn) string {
	h.t.Helper()
	buf := make([]byte, 100)
	for range 10 {
		c.Write([]byte("?")) // an error is that of the datagram before
		h.must(c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)))
		if n, err := c.Read(buf); err == nil {
			return string(buf[:n])
		}
	}
	return ""
}

// outside joins a namespace to the host by a link of its own, as a machine of the host's network: the host is .1, the
// machine .2 of the range, without a route to anything else.
func (h *testHost) outside(cidr string) (path string, host, machine netip.Addr) {
	h.t.Helper()
	return h.network("0", cidr)
}

// network is outside for one of several networks.
func (h *testHost) network(name, cidr string) (path string, host, machine netip.Addr) {
	h.t.Helper()
	path = h.sandbox("outside" + name)
	prefix := netip.MustParsePrefix(cidr)
	host = prefix.Addr().Next()
	machine = host.Next()
	up, down := "up"+name, "down"+name
	attrs := netlink.NewLinkAttrs()
	attrs.Name = up
	h.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: down}))
	link, err := netlink.LinkByName(up)
	h.must(err)
	h.t.Cleanup(func() { h.must(netlink.LinkDel(link)) })
	h.must(netlink.AddrAdd(link, &netlink.Addr{IPNet: links.IPNet(netip.PrefixFrom(host, prefix.Bits())), Flags: nodad(host)}))
	h.must(netlink.LinkSetUp(link))
	peer, err := netlink.LinkByName(down)
	h.must(err)
	ns, err := os.Open(path)
	h.must(err)
	defer ns.Close()
	h.must(netlink.LinkSetNsFd(peer, int(ns.Fd())))
	h.in(path, func() error {
		peer, err := netlink.LinkByName(down)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(peer, &netlink.Addr{IPNet: links.IPNet(netip.PrefixFrom(machine, prefix.Bits())), Flags: nodad(machine)}); err != nil {
			return err
		}
		return netlink.LinkSetUp(peer)
	})
	return path, host, machine
}

// route makes a namespace send to everywhere by a gateway.
func (h *testHost) route(path string, gateway netip.Addr) {
	h.t.Helper()
	h.in(path, func() error {
		return netlink.RouteAdd(&netlink.Route{Gw: gateway.AsSlice()})
	})
}

// nodad makes an IPv6 address good at once.
func nodad(a netip.Addr) int {
	if a.Is6() {
		return unix.IFA_F_NODAD
	}
	return 0
}

// inUse waits until these sandboxes, and no others, have addresses.
func (h *testHost) inUse(b *Bridge, want ...ids.SandboxID) {
	h.t.Helper()
	harness.Eventually(h.t, fmt.Sprintf("the sandboxes with addresses are %v", want), func() (bool, string) {
		got := b.ledger.Sandboxes()
		return slices.Equal(got, want), fmt.Sprint(got)
	})
}
