package table

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/network/podnet"
	"monopod.dev/monopod/internal/proxy/plan"
	"monopod.dev/monopod/test/harness"
)

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

// open opens the table and makes it as it is wanted.
func (h *testHost) open(all map[string]Service) *Table {
	h.t.Helper()
	return h.openWith(networksOf(testBridge), all)
}

func (h *testHost) openWith(networks podnet.Networks, all map[string]Service) *Table {
	h.t.Helper()
	return h.openGuarded(Config{Networks: networks}, nil, all)
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
