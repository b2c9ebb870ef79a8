package network

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/state"
	"monopod.dev/monopod/test/harness"
)

// testHost is a network namespace that plays the host: the test's goroutine is moved into it, so that bridges, rules
// and sysctls of a test never meet those of this machine. At the end it must look as it did at the start.
type testHost struct {
	t   *testing.T
	dir string
}

func newHost(t *testing.T) *testHost {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread, and the namespace with it, ends with the test's goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("a network namespace is needed (root): %v", err)
	}
	h := &testHost{t: t, dir: t.TempDir()}
	h.must(os.WriteFile(ipForwardFile, []byte("0\n"), 0))
	lo, err := netlink.LinkByName("lo")
	h.must(err)
	h.must(netlink.LinkSetUp(lo))
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
	links, err := netlink.LinkList()
	h.must(err)
	for _, l := range links {
		fmt.Fprintln(&s, "link", l.Attrs().Name, l.Type())
	}
	addrs, err := netlink.AddrList(nil, unix.AF_UNSPEC)
	h.must(err)
	for _, a := range addrs {
		fmt.Fprintln(&s, "address", a.IPNet)
	}
	conn, err := nftables.New()
	h.must(err)
	tables, err := conn.ListTables()
	h.must(err)
	for _, table := range tables {
		fmt.Fprintln(&s, "table", table.Family, table.Name)
	}
	on, err := forwarding()
	h.must(err)
	fmt.Fprintln(&s, "forwarding", on)
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
		cfg.DB = h.openDB(cfg.Bridge + ".db")
	}
	b, err := New(h.t.Context(), cfg)
	h.must(err)
	h.must(b.Start(h.t.Context()))
	h.t.Cleanup(func() {
		h.must(b.Remove(h.t.Context()))
		h.must(b.Remove(h.t.Context())) // idempotent
		if n := b.ledger.inUse(); n != 0 {
			h.t.Errorf("%d addresses are in use after Remove", n)
		}
		b.Close()
	})
	return b
}

// sandbox makes a network namespace, pinned at the returned path.
func (h *testHost) sandbox(name string) string {
	h.t.Helper()
	path := filepath.Join(h.dir, name)
	h.must(os.WriteFile(path, nil, 0o600))
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: see newHost
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = unix.Mount(fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid()), path, "", unix.MS_BIND, "")
		}
		done <- err
	}()
	h.must(<-done)
	h.t.Cleanup(func() { h.drop(path) })
	return path
}

// drop ends a sandbox's namespace.
func (h *testHost) drop(path string) {
	h.t.Helper()
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && err != unix.EINVAL {
		h.t.Error(err)
	}
}

// in runs f on a thread of the namespace.
func (h *testHost) in(path string, f func() error) {
	h.t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		ns, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			defer unix.Close(ns)
			err = unix.Setns(ns, unix.CLONE_NEWNET)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	h.must(<-done)
}

// serve listens in a namespace ("" is the host) and answers each connection with the address it comes from.
func (h *testHost) serve(path, addr string) {
	h.t.Helper()
	var l net.Listener
	listen := func() (err error) {
		l, err = net.Listen("tcp4", addr)
		return err
	}
	if path == "" {
		h.must(listen())
	} else {
		h.in(path, listen)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, c.RemoteAddr())
			c.Close()
		}
	}()
	h.t.Cleanup(func() { l.Close() })
}

// ask connects from a namespace and returns the address that the server saw.
func (h *testHost) ask(path, addr string) netip.Addr {
	h.t.Helper()
	var seen netip.Addr
	h.in(path, func() error {
		c, err := net.DialTimeout("tcp4", addr, 5*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		raw, err := io.ReadAll(c)
		if err != nil {
			return err
		}
		from, err := netip.ParseAddrPort(string(raw))
		seen = from.Addr()
		return err
	})
	return seen
}

// outside joins a namespace to the host by a link of its own, as a machine of the host's network: the host is .1, the
// machine .2 of the range, without a route to anything else.
func (h *testHost) outside(cidr string) (path string, host, machine netip.Addr) {
	h.t.Helper()
	path = h.sandbox("outside")
	prefix := netip.MustParsePrefix(cidr)
	host = prefix.Addr().Next()
	machine = host.Next()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "up0"
	h.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "down0"}))
	link, err := netlink.LinkByName("up0")
	h.must(err)
	h.t.Cleanup(func() { h.must(netlink.LinkDel(link)) })
	h.must(netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(host, prefix.Bits()))}))
	h.must(netlink.LinkSetUp(link))
	peer, err := netlink.LinkByName("down0")
	h.must(err)
	ns, err := os.Open(path)
	h.must(err)
	defer ns.Close()
	h.must(netlink.LinkSetNsFd(peer, int(ns.Fd())))
	h.in(path, func() error {
		peer, err := netlink.LinkByName("down0")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(peer, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(machine, prefix.Bits()))}); err != nil {
			return err
		}
		return netlink.LinkSetUp(peer)
	})
	return path, host, machine
}
