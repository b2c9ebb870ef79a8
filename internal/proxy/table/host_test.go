package table

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
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

	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/proxy/plan"
	"monopod.dev/monopod/internal/state"
	"monopod.dev/monopod/test/harness"
)

const (
	testBridge = "mps0"
	testTable  = "mps0-services"
)

var (
	pods4, pods6 = netip.MustParsePrefix("10.88.0.0/24"), netip.MustParsePrefix("fd88::/64")
	vip4, vip6   = netip.MustParseAddr("10.99.0.10"), netip.MustParseAddr("fd99::10")
)

// testHost is a network namespace that plays the host, with a bridge for pods and a network outside.
type testHost struct {
	t       *testing.T
	dir     string
	bridge  *network.Bridge
	outside string     // a machine of the host's network
	host    netip.Addr // the host there
	machine netip.Addr // the machine
}

func newHost(t *testing.T) *testHost {
	t.Helper()
	harness.NewNetwork(t)
	h := &testHost{t: t, dir: t.TempDir()}
	db, _, err := state.Open(state.Config{Path: filepath.Join(h.dir, "state.db")})
	h.must(err)
	t.Cleanup(func() { h.must(db.Close()) })
	h.bridge, err = network.New(t.Context(), network.Config{DB: db, Bridge: testBridge, PodCIDRs: []netip.Prefix{pods4, pods6}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	h.must(err)
	h.must(h.bridge.Start(t.Context()))
	t.Cleanup(func() {
		h.must(h.bridge.Remove(context.Background()))
		h.bridge.Close()
	})
	h.network()
	return h
}

func (h *testHost) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// sandbox makes a network namespace, pinned at the returned path.
func (h *testHost) sandbox(name string) string {
	h.t.Helper()
	path := filepath.Join(h.dir, name)
	harness.PinNetNS(h.t, path)
	return path
}

// pod connects a sandbox to the bridge.
func (h *testHost) pod(name string) (path string, ips []netip.Addr) {
	h.t.Helper()
	path = h.sandbox(name)
	res, err := h.bridge.Setup(h.t.Context(), network.Request{SandboxID: name, NetNS: path})
	h.must(err)
	return path, res.IPs
}

// network joins a machine to the host by a link; the host is its way to everywhere, and it the host's.
func (h *testHost) network() {
	h.t.Helper()
	h.outside, h.host, h.machine = h.sandbox("outside"), netip.MustParseAddr("192.168.77.1"), netip.MustParseAddr("192.168.77.2")
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "up0"
	h.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "down0"}))
	address := func(link netlink.Link, all ...string) error {
		for _, a := range all {
			addr, err := netlink.ParseAddr(a)
			if err != nil {
				return err
			}
			if addr.IP.To4() == nil {
				addr.Flags = unix.IFA_F_NODAD
			}
			if err := netlink.AddrAdd(link, addr); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(link)
	}
	up, err := netlink.LinkByName("up0")
	h.must(err)
	h.t.Cleanup(func() { h.must(netlink.LinkDel(up)) })
	down, err := netlink.LinkByName("down0")
	h.must(err)
	ns, err := os.Open(h.outside)
	h.must(err)
	defer ns.Close()
	h.must(netlink.LinkSetNsFd(down, int(ns.Fd())))
	h.must(address(up, "192.168.77.1/24", "fd77::1/64"))
	h.at(h.outside, func() error {
		down, err := netlink.LinkByName("down0")
		if err == nil {
			err = address(down, "192.168.77.2/24", "fd77::2/64")
		}
		for _, gw := range []string{"192.168.77.1", "fd77::1"} {
			if err == nil {
				err = netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(gw)})
			}
		}
		return err
	})
	for _, gw := range []string{"192.168.77.2", "fd77::2"} {
		h.must(netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(gw)}))
	}
}

// at runs f in a namespace; "" is the host.
func (h *testHost) at(path string, f func() error) {
	h.t.Helper()
	if path == "" {
		h.must(f())
		return
	}
	h.must(harness.InNetNS(path, f))
}

// serve answers each connection and each datagram with a name and the address it comes from.
func (h *testHost) serve(path, name string, port uint16) {
	h.t.Helper()
	h.serveAt(path, name, fmt.Sprintf(":%d", port))
}

// serveAt is serve at an address.
func (h *testHost) serveAt(path, name, address string) {
	h.t.Helper()
	var l net.Listener
	var p net.PacketConn
	h.at(path, func() (err error) {
		if l, err = net.Listen("tcp", address); err == nil {
			p, err = net.ListenPacket("udp", address)
		}
		return err
	})
	h.t.Cleanup(func() { l.Close(); p.Close() })
	from := func(a net.Addr) string { return netip.MustParseAddrPort(a.String()).Addr().Unmap().String() }
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(c, "%s %s", name, from(c.RemoteAddr()))
			c.Close()
		}
	}()
	go func() {
		buf := make([]byte, 9000)
		for {
			n, a, err := p.ReadFrom(buf)
			if err != nil {
				return
			}
			answer := name + " " + from(a)
			if n > 1000 { // a long question has a long answer
				answer += strings.Repeat(".", n)
			}
			p.WriteTo([]byte(answer), a)
		}
	}()
}

// ask connects and returns the answer: whom it reached, and as whom.
func (h *testHost) ask(path, addr string) string {
	h.t.Helper()
	answer, err := h.try(path, addr, 5*time.Second*harness.SlowFactor())
	if err != nil {
		return "error: " + err.Error()
	}
	return answer
}

func (h *testHost) try(path, addr string, limit time.Duration) (answer string, err error) {
	h.t.Helper()
	h.at(path, func() error {
		var c net.Conn
		if c, err = (&net.Dialer{Timeout: limit}).Dial("tcp", addr); err != nil {
			return nil
		}
		defer c.Close()
		if err = c.SetDeadline(time.Now().Add(limit)); err == nil {
			var raw []byte
			raw, err = io.ReadAll(c)
			answer = string(raw)
		}
		return nil
	})
	return answer, err
}

// bridgeNetfilter shows the frames of bridges to the host's firewall, or not; false: this kernel cannot.
func (h *testHost) bridgeNetfilter(on string) bool {
	h.t.Helper()
	for _, f := range []string{"iptables", "ip6tables"} {
		err := os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-"+f, []byte(on), 0)
		if os.IsNotExist(err) {
			return on == "0"
		}
		h.must(err)
	}
	return true
}

// silent says that nobody answers. What is dropped has no other sign than that.
func (h *testHost) silent(path, addr string) bool {
	h.t.Helper()
	_, err := h.try(path, addr, 300*time.Millisecond*harness.SlowFactor())
	return isTimeout(err)
}

func isTimeout(err error) bool {
	n, ok := err.(net.Error)
	return ok && n.Timeout()
}

// client is a UDP socket that sends to one address only.
func (h *testHost) client(path, addr string) net.Conn {
	h.t.Helper()
	var c net.Conn
	h.at(path, func() (err error) {
		c, err = net.Dial("udp", addr)
		return err
	})
	h.t.Cleanup(func() { c.Close() })
	return c
}

// askUDP sends until there is an answer, or an error says that there will be none.
func (h *testHost) askUDP(c net.Conn, question string) string {
	h.t.Helper()
	buf := make([]byte, 9000)
	var last error
	for range 20 {
		if _, last = c.Write([]byte(question)); errors.Is(last, unix.ECONNREFUSED) {
			break // what the datagram before has come to
		} else if last != nil {
			continue
		}
		h.must(c.SetReadDeadline(time.Now().Add(100 * time.Millisecond * harness.SlowFactor())))
		n, err := c.Read(buf)
		if err == nil {
			return string(buf[:n])
		}
		last = err
		if !isTimeout(err) {
			break
		}
	}
	return "error: " + last.Error()
}

// open opens the tables and makes them as they are wanted.
func (h *testHost) open(all map[string]Service) *Table {
	h.t.Helper()
	return h.openWith(Bridge{Name: testBridge, PortGroup: network.PortGroup(testBridge), Group: network.BridgeGroup}, all)
}

func (h *testHost) openWith(b Bridge, all map[string]Service) *Table {
	h.t.Helper()
	return h.openGuarded(Config{Bridge: b}, nil, all)
}

// openGuarded is open with guarded addresses.
func (h *testHost) openGuarded(cfg Config, guarded []netip.Addr, all map[string]Service) *Table {
	h.t.Helper()
	cfg.Name, cfg.Log = testTable, slog.New(slog.NewTextHandler(h.t.Output(), nil))
	t, err := Open(h.t.Context(), cfg)
	h.must(err)
	h.must(t.Guard(guarded))
	h.t.Cleanup(func() {
		h.must(t.Remove())
		h.must(t.Remove()) // idempotent
		t.Close()
		conn, err := nftables.New()
		h.must(err)
		left, err := conn.ListTables()
		h.must(err)
		for _, table := range left {
			if table.Name == testTable {
				h.t.Errorf("the table %v is left", table)
			}
		}
	})
	refused, err := t.Start(h.t.Context(), nil, all)
	h.must(err)
	if len(refused) > 0 {
		h.t.Fatalf("refused: %v", refused)
	}
	return t
}

// apply makes one change that must succeed.
func (h *testHost) apply(t *Table, name string, s *Service) {
	h.t.Helper()
	if refused := t.Apply(h.t.Context(), map[string]*Service{name: s}); len(refused) > 0 {
		h.t.Fatalf("refused: %v", refused)
	}
}

// balanced is a service with a list of endpoints for each protocol, at these fronts.
type balanced struct {
	fronts    []string // "10.99.0.10:80"; ":30080" is a node port of both families
	endpoints []netip.AddrPort
	affinity  uint32
	outside   []netip.AddrPort // where it is otherwise from outside: these
	hidden    bool             // masquerade
	ranges    []netip.Prefix
	elsewhere []netip.Addr // endpoints that are not at this node
}

func (b balanced) service() *Service {
	p := plan.Service{Inside: map[plan.Front]plan.Target{}, Outside: map[plan.Front]plan.Target{}, Ranges: map[plan.Front][]netip.Prefix{},
		Lists: map[string]plan.List{}, Local: map[plan.LocalEndpoint]bool{}}
	for _, protocol := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
		for _, is4 := range []bool{true, false} {
			of := func(all []netip.AddrPort, what string) plan.Target {
				var l plan.List
				for _, e := range all {
					if e.Addr().Is4() == is4 {
						l.Endpoints = append(l.Endpoints, e)
					}
					if !slices.Contains(b.elsewhere, e.Addr()) {
						p.Local[plan.LocalEndpoint{Protocol: protocol, At: e}] = true
					}
				}
				if len(l.Endpoints) == 0 {
					return plan.Target{Action: plan.Reject}
				}
				slices.SortFunc(l.Endpoints, netip.AddrPort.Compare)
				l.Protocol, l.Affinity = protocol, b.affinity
				name := fmt.Sprint(b.fronts, what, protocol, is4)
				p.Lists[name] = l
				return plan.Target{List: name, Masquerade: b.hidden}
			}
			target := of(b.endpoints, "")
			for _, s := range b.fronts {
				f := plan.Front{Protocol: protocol}
				if s[0] == ':' {
					fmt.Sscanf(s, ":%d", &f.Port)
					f.Addr = netip.IPv6Unspecified()
					if is4 {
						f.Addr = netip.IPv4Unspecified()
					}
				} else {
					at := netip.MustParseAddrPort(s)
					f.Addr, f.Port = at.Addr(), at.Port()
				}
				if f.Addr.Is4() != is4 {
					continue
				}
				p.Inside[f] = target
				if b.outside != nil {
					p.Outside[f] = of(b.outside, "outside")
				}
				for _, r := range b.ranges {
					if r.Addr().Is4() == is4 {
						p.Ranges[f] = append(p.Ranges[f], r)
					}
				}
			}
		}
	}
	return &Service{Plan: p}
}
