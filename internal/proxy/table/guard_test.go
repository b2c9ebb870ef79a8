package table

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"monopod.dev/monopod/test/harness"
)

// echoed says whether an address answers an echo request from a machine.
func (h *testHost) echoed(path string, to netip.Addr) (answered bool) {
	h.t.Helper()
	h.at(path, func() error {
		network, request := "ip4:icmp", icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: 7, Seq: 1}}
		protocol, reply := 1, icmp.Type(ipv4.ICMPTypeEchoReply)
		if to.Is6() {
			network, request.Type, protocol, reply = "ip6:ipv6-icmp", ipv6.ICMPTypeEchoRequest, 58, ipv6.ICMPTypeEchoReply
		}
		c, err := icmp.ListenPacket(network, "")
		if err != nil {
			return err
		}
		defer c.Close()
		raw, err := request.Marshal(nil)
		if err != nil {
			return err
		}
		buf := make([]byte, 1500)
		for range 20 {
			if _, err := c.WriteTo(raw, &net.IPAddr{IP: to.AsSlice()}); err != nil {
				return err
			}
			h.must(c.SetReadDeadline(time.Now().Add(100 * time.Millisecond * harness.SlowFactor())))
			for {
				n, from, err := c.ReadFrom(buf)
				if err != nil {
					break
				}
				m, err := icmp.ParseMessage(protocol, buf[:n])
				if err == nil && m.Type == reply && from.String() == to.String() {
					answered = true
					return nil
				}
			}
		}
		return nil
	})
	return answered
}

// At an address that is the host's own for the sake of services there are services, and nothing else of what the host has.
func TestGuardedAddresses(t *testing.T) {
	h := newHost(t)
	server, serverIPs := h.pod("server")
	client, _ := h.pod("client")
	h.serve(server, "server", 8080)
	// Another pod has the service's port at all of the host's addresses.
	ported, portedIPs := h.pod("ported")
	h.hostPort(80, portedIPs, 8080)
	h.serve(ported, "ported", 8080)
	h.serve("", "host", 9999)
	balancer4, balancer6 := netip.MustParseAddr("192.168.77.100"), netip.MustParseAddr("fd77::100")
	up, err := netlink.LinkByName("up0")
	h.must(err)
	for _, a := range []netip.Addr{balancer4, balancer6} {
		h.must(netlink.AddrAdd(up, alone(a)))
	}
	service := balanced{fronts: []string{at(balancer4, 80).String(), at(balancer6, 80).String(), ":30080"}, endpoints: []netip.AddrPort{at(serverIPs[0], 8080), at(serverIPs[1], 8080)}}
	service.outside = service.endpoints
	with := service.service()
	with.Plan.Addresses = []netip.Addr{balancer4, balancer6}
	all := map[string]Service{"default/web": *with}
	cfg := Config{Networks: networksOf(testBridge), Guards: true}
	tbl := h.openGuarded(cfg, nil, all)
	// who answers at a port; "refused": nobody.
	expect := func(when string, of []netip.Addr, want map[uint16]string) {
		t.Helper()
		for _, from := range []string{h.outside, client, ""} {
			for _, a := range of {
				for port, who := range want {
					to := at(a, port).String()
					if got := h.ask(from, to); !strings.Contains(got, who) {
						t.Errorf("%s, TCP from %q to %s: %q, want %s", when, from, to, got, who)
					}
					if who == "host" {
						continue // its answer to a datagram has an address that the kernel chooses
					}
					if got := h.askUDP(h.client(from, to), "?"); !strings.Contains(got, who) {
						t.Errorf("%s, UDP from %q to %s: %q, want %s", when, from, to, got, who)
					}
				}
			}
		}
	}
	balancers, hosts := []netip.Addr{balancer4, balancer6}, []netip.Addr{h.host, netip.MustParseAddr("fd77::1")}
	expect("without a guard", balancers, map[uint16]string{80: "ported", 9999: "host"})
	services := map[uint16]string{80: "server", 9999: "refused", 30080: "refused", 8080: "refused"}
	h.must(tbl.Guard(balancers))
	expect("guarded", balancers, services)
	expect("at the host's own addresses", hosts, map[uint16]string{80: "ported", 9999: "host", 30080: "server"})
	for _, a := range append(slices.Clone(balancers), hosts...) {
		if !h.echoed(h.outside, a) {
			t.Errorf("%s does not answer an echo request", a)
		}
	}
	h.apply(tbl, "default/web", nil)
	expect("guarded, without a service", balancers, map[uint16]string{80: "refused", 9999: "refused"})
	h.apply(tbl, "default/web", with)

	// The next process is told before it begins, and has nothing to change.
	tbl.watcher.SetActive(false)
	before := tbl.transactionsOf(t)
	next, err := Open(context.Background(), Config{Name: testTable, Networks: cfg.Networks, Guards: true})
	h.must(err)
	defer next.Close()
	h.must(next.Guard(balancers))
	refused, err := next.Start(t.Context(), nil, all)
	h.must(err)
	if after := tbl.transactionsOf(t); after != before || len(refused) > 0 {
		t.Errorf("a start has made %d transactions, and refused %v", after-before, refused)
	}
	h.must(next.Guard([]netip.Addr{balancer6}))
	expect("guarded no more", balancers[:1], map[uint16]string{80: "ported", 9999: "host"})
	expect("guarded still", balancers[1:], services)
	harness.NftLists(t, fmt.Sprintf("chain %s%s", guardedPrefix, preroutingChain), "set guarded6")
}
