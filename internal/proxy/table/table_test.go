package table

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/proxy/plan"
	"monopod.dev/monopod/test/harness"
)

func at(ip netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(ip, port) }

// A service is reached from everywhere that it has to be, and its endpoints see who asks them; a pod that asks itself sees the host.
func TestServiceIsReached(t *testing.T) {
	h := newHost(t)
	server, serverIPs := h.pod("server")
	client, clientIPs := h.pod("client")
	h.serve(server, "server", 8080)
	tbl := h.open(map[string]Service{"default/web": *balanced{
		fronts:    []string{at(vip4, 80).String(), at(vip6, 80).String(), ":30080", "127.0.0.1:8000", h.host.String() + ":8000"},
		endpoints: []netip.AddrPort{at(serverIPs[0], 8080), at(serverIPs[1], 8080)}, hidden: true,
	}.service()})
	const aHost = "the host"
	hosts := []netip.Addr{h.gateways[0], h.gateways[1], h.host, netip.MustParseAddr("fd77::1")}
	for _, c := range []struct{ name, from, to, seen string }{
		{"a pod", client, at(vip4, 80).String(), clientIPs[0].String()},
		{"a pod, IPv6", client, at(vip6, 80).String(), clientIPs[1].String()},
		{"the pod itself", server, at(vip4, 80).String(), aHost},
		{"the pod itself, IPv6", server, at(vip6, 80).String(), aHost},
		{"the pod itself, at the node's port", server, h.host.String() + ":30080", aHost},
		{"the pod itself, at the node's port, IPv6", server, "[fd77::1]:30080", aHost},
		{"the pod itself, at the gateway's port", server, at(h.gateways[0], 30080).String(), aHost},
		{"the host", "", at(vip4, 80).String(), h.host.String()},
		{"the host, IPv6", "", at(vip6, 80).String(), "fd77::1"},
		{"outside, at the node's port", h.outside, h.host.String() + ":30080", h.machine.String()},
		{"outside, at the node's port, IPv6", h.outside, "[fd77::1]:30080", "fd77::2"},
		{"outside, at the service's address", h.outside, at(vip4, 80).String(), h.machine.String()},
		{"outside, at the load balancer", h.outside, h.host.String() + ":8000", h.machine.String()},
		{"a pod, at the node's port", client, h.host.String() + ":30080", clientIPs[0].String()},
		{"a pod, at the gateway's port", client, at(h.gateways[0], 30080).String(), clientIPs[0].String()},
		{"a pod, at the gateway's port, IPv6", client, at(h.gateways[1], 30080).String(), clientIPs[1].String()},
		{"the host, at its port", "", h.host.String() + ":30080", h.host.String()},
		{"the host, at its loopback port", "", "127.0.0.1:30080", h.gateways[0].String()},
		{"the host, at the load balancer's loopback port", "", "127.0.0.1:8000", h.gateways[0].String()},
		{"a pod, directly", client, at(serverIPs[0], 8080).String(), clientIPs[0].String()},
		{"a pod, directly, IPv6", client, at(serverIPs[1], 8080).String(), clientIPs[1].String()},
	} {
		is := func(got string) bool {
			seen, err := netip.ParseAddr(strings.TrimPrefix(got, "server "))
			return got == "server "+c.seen || c.seen == aHost && err == nil && slices.Contains(hosts, seen)
		}
		if got := h.ask(c.from, c.to); !is(got) {
			t.Errorf("TCP from %s to %s: %q, want as %s", c.name, c.to, got, c.seen)
		}
		if got := h.askUDP(h.client(c.from, c.to), "?"); !is(got) {
			t.Errorf("UDP from %s to %s: %q, want as %s", c.name, c.to, got, c.seen)
		}
	}
	// Datagrams that come in parts.
	for _, from := range []string{client, server, h.outside} {
		for _, to := range []string{at(vip4, 80).String(), at(vip6, 80).String()} {
			if got := h.askUDP(h.client(from, to), strings.Repeat("?", 4000)); len(got) < 4000 {
				t.Errorf("a long datagram to %s: %q", to, got)
			}
		}
	}
	// What an endpoint says about a datagram comes back to who has sent it.
	h.apply(tbl, "default/mute", balanced{
		fronts: []string{at(vip4, 81).String(), at(vip6, 81).String()}, endpoints: []netip.AddrPort{at(serverIPs[0], 9), at(serverIPs[1], 9)},
	}.service())
	for _, from := range []string{client, server, h.outside, ""} {
		for _, to := range []string{at(vip4, 81).String(), at(vip6, 81).String()} {
			if got := h.askUDP(h.client(from, to), "?"); !strings.Contains(got, "refused") {
				t.Errorf("UDP from %q to %s, where nobody listens: %q", from, to, got)
			}
		}
	}
}

// Who has no endpoints refuses at once; so does another port of a service's address, but not an address of the node's own.
func TestServiceWithoutEndpointsRefuses(t *testing.T) {
	h := newHost(t)
	client, _ := h.pod("client")
	h.open(map[string]Service{"default/none": *balanced{fronts: []string{at(vip4, 80).String(), at(vip6, 80).String(), ":30080"}}.service()})
	for _, from := range []string{client, "", h.outside} {
		for _, to := range []string{at(vip4, 80).String(), at(vip6, 80).String(), h.host.String() + ":30080"} {
			if got := h.ask(from, to); !strings.Contains(got, "refused") {
				t.Errorf("TCP from %q to %s: %q", from, to, got)
			}
			if got := h.askUDP(h.client(from, to), "?"); !strings.Contains(got, "refused") {
				t.Errorf("UDP from %q to %s: %q", from, to, got)
			}
		}
	}
}

// Connections are spread over the endpoints, with affinity they stay with one, and when that goes they go to another one.
func TestEndpointsOfAService(t *testing.T) {
	h := newHost(t)
	client, _ := h.pod("client")
	var all []netip.AddrPort
	for i := range 3 {
		path, ips := h.pod(fmt.Sprint("server", i))
		h.serve(path, fmt.Sprint("server", i), 8080)
		all = append(all, at(ips[0], 8080))
	}
	to := at(vip4, 80).String()
	asked := func(n int) map[string]int {
		got := map[string]int{}
		for range n {
			got[strings.Fields(h.ask(client, to))[0]]++
		}
		return got
	}
	b := balanced{fronts: []string{to}, endpoints: all}
	tbl := h.open(map[string]Service{"default/web": *b.service()})
	if got := asked(60); len(got) != 3 {
		t.Errorf("without affinity: %v", got)
	}
	b.affinity = 600
	h.apply(tbl, "default/web", b.service())
	got := asked(20)
	if len(got) != 1 {
		t.Errorf("with affinity: %v", got)
	}
	for i := range all {
		if got[fmt.Sprint("server", i)] > 0 {
			b.endpoints = append(append([]netip.AddrPort{}, all[:i]...), all[i+1:]...)
		}
	}
	h.apply(tbl, "default/web", b.service())
	after := asked(20)
	if len(after) != 1 {
		t.Errorf("with affinity, after the endpoint has gone: %v", after)
	}
	for name := range after {
		if got[name] > 0 {
			t.Errorf("%s gets connections though it has gone", name)
		}
	}
	b.endpoints = nil
	h.apply(tbl, "default/web", b.service())
	if got := h.ask(client, to); !strings.Contains(got, "refused") {
		t.Errorf("without endpoints: %q", got)
	}
	h.apply(tbl, "default/web", nil)
	if !h.silent(client, to) {
		t.Error("a service that is gone answers")
	}
	if n := len(tbl.book.wanted); n != 0 {
		t.Errorf("%d elements are left", n)
	}
}

// UDP clients that go on sending follow the endpoints.
func TestUDPFollowsEndpoints(t *testing.T) {
	h := newHost(t)
	client, _ := h.pod("client")
	one, oneIPs := h.pod("one")
	two, twoIPs := h.pod("two")
	h.serve(one, "one", 53)
	h.serve(two, "two", 53)
	b := balanced{fronts: []string{at(vip4, 53).String(), ":30053"}}
	tbl := h.open(nil)
	pod, node := h.client(client, at(vip4, 53).String()), h.client(h.outside, h.host.String()+":30053")
	want := func(when, name string) {
		t.Helper()
		for _, c := range []struct {
			from string
			got  string
		}{{"a pod", h.askUDP(pod, "?")}, {"outside", h.askUDP(node, "?")}} {
			if !strings.HasPrefix(c.got, name) {
				t.Errorf("%s, from %s: %q, want %s", when, c.from, c.got, name)
			}
		}
	}
	pod.Write([]byte("before there is a service"))
	b.endpoints = []netip.AddrPort{at(oneIPs[0], 53)}
	h.apply(tbl, "default/dns", b.service())
	want("the first endpoint", "one")
	b.endpoints = []netip.AddrPort{at(twoIPs[0], 53)}
	h.apply(tbl, "default/dns", b.service())
	want("another endpoint", "two")
	b.endpoints = nil
	h.apply(tbl, "default/dns", b.service())
	want("no endpoint", "error")
	b.endpoints = []netip.AddrPort{at(oneIPs[0], 53)}
	h.apply(tbl, "default/dns", b.service())
	want("an endpoint again", "one")
}

// From outside a service with a policy of its own goes where that says; ranges keep others out.
func TestOutsideIsAnotherWay(t *testing.T) {
	h := newHost(t)
	client, _ := h.pod("client")
	one, oneIPs := h.pod("one")
	two, twoIPs := h.pod("two")
	h.serve(one, "one", 80)
	h.serve(two, "two", 80)
	to := h.host.String() + ":8000"
	b := balanced{fronts: []string{to, ":30080"}, endpoints: []netip.AddrPort{at(oneIPs[0], 80)}, outside: []netip.AddrPort{at(twoIPs[0], 80)}}
	tbl := h.open(map[string]Service{"default/lb": *b.service()})
	for _, to := range []string{to, h.host.String() + ":30080"} {
		if got := h.ask(client, to); !strings.HasPrefix(got, "one ") {
			t.Errorf("from a pod to %s: %q", to, got)
		}
		if got := h.ask("", to); !strings.HasPrefix(got, "one ") {
			t.Errorf("from the host to %s: %q", to, got)
		}
		if got := h.ask(h.outside, to); got != "two "+h.machine.String() {
			t.Errorf("from outside to %s: %q", to, got)
		}
	}
	b.outside = nil
	for _, c := range []struct {
		ranges string
		passes bool
	}{{"192.168.77.0/24", true}, {"192.168.78.0/24", false}} {
		b.ranges = []netip.Prefix{netip.MustParsePrefix(c.ranges), netip.MustParsePrefix("172.16.0.0/12")}
		h.apply(tbl, "default/lb", b.service())
		if passes := !h.silent(h.outside, to); passes != c.passes {
			t.Errorf("ranges %s: passes %v", c.ranges, passes)
		}
	}
}

// Who is sent on to another machine comes by this one on the way back.
func TestWhatLeavesIsMasqueraded(t *testing.T) {
	h := newHost(t)
	h.serve(h.outside, "far", 9000)
	client, _ := h.pod("client")
	b := balanced{fronts: []string{at(vip4, 80).String(), ":30080"}, endpoints: []netip.AddrPort{at(h.machine, 9000)}, hidden: true, elsewhere: []netip.Addr{h.machine}}
	h.open(map[string]Service{"default/far": *b.service()})
	for _, from := range []string{client, ""} {
		if got := h.ask(from, at(vip4, 80).String()); got != "far "+h.host.String() {
			t.Errorf("from %q: %q", from, got)
		}
	}
	// It would answer itself else.
	if got := h.ask(h.outside, h.host.String()+":30080"); got != "far "+h.host.String() {
		t.Errorf("from outside: %q", got)
	}
}

// Pods that others connect to this host, as CNI does: nobody knows their interfaces, but perhaps their ranges.
func TestPodsOfOthers(t *testing.T) {
	h := newHost(t)
	one, oneIPs := h.pod("one")
	two, twoIPs := h.pod("two")
	client, clientIPs := h.pod("client")
	h.serve(one, "one", 80)
	h.serve(two, "two", 80)
	b := balanced{fronts: []string{at(vip4, 80).String(), at(vip6, 80).String()}, endpoints: []netip.AddrPort{at(oneIPs[0], 80), at(oneIPs[1], 80)}}
	b.outside = []netip.AddrPort{at(twoIPs[0], 80), at(twoIPs[1], 80)}
	tbl := h.openWith(nil, map[string]Service{"default/web": *b.service()})
	for i, to := range b.fronts {
		if got := h.ask(client, to); got != "two "+clientIPs[i].String() {
			t.Errorf("a pod of which nothing is known is not led as from elsewhere: %q", got)
		}
	}
	h.must(tbl.SetRanges([]netip.Prefix{pods4, pods6}))
	for i, to := range b.fronts {
		if got := h.ask(client, to); got != "one "+clientIPs[i].String() {
			t.Errorf("a pod of this node: %q", got)
		}
		if got := h.ask(one, to); !strings.HasPrefix(got, "one ") || strings.Contains(got, oneIPs[i].String()) {
			t.Errorf("the pod itself: %q", got)
		}
		if got := h.ask(h.outside, to); !strings.HasPrefix(got, "two ") {
			t.Errorf("from outside: %q", got)
		}
	}
}

// Pods of each node of a host have the services of their own node, also at the same addresses.
func TestNodesOfOneHost(t *testing.T) {
	const otherBridge = "mpt0"
	h := newHost(t)
	one, oneIPs := h.pod("one")
	two, twoIPs := h.podOf(otherBridge, "two")
	h.serve(one, "one", 80)
	h.serve(two, "two", 80)
	to, node := at(vip4, 80).String(), h.host.String()+":30080"
	client, _ := h.pod("client")
	other, _ := h.podOf(otherBridge, "other")
	front := func(ips []netip.Addr) Service {
		return *balanced{fronts: []string{to, ":30080"}, endpoints: []netip.AddrPort{at(ips[0], 80)}}.service()
	}
	// The first one's alone is nothing to pods of the second.
	h.open(map[string]Service{"default/web": front(oneIPs)})
	if !h.silent(other, to) {
		t.Error("a pod of another node reaches a service of this one")
	}
	second, err := Open(t.Context(), Config{Name: otherBridge + "-services", Networks: networksOf(otherBridge)})
	h.must(err)
	t.Cleanup(func() { h.must(second.Remove()); second.Close() })
	_, err = second.Start(t.Context(), nil, map[string]Service{"default/web": front(twoIPs)})
	h.must(err)
	for _, to := range []string{to, node} {
		if got := h.ask(client, to); !strings.HasPrefix(got, "one ") {
			t.Errorf("from a pod of the first node to %s: %q", to, got)
		}
		if got := h.ask(other, to); !strings.HasPrefix(got, "two ") {
			t.Errorf("from a pod of the second node to %s: %q", to, got)
		}
	}
}

// What a version before has had for frames between pods goes with the first write of the table, and with Remove; tables of others stay.
func TestTheFormerTableOfFrames(t *testing.T) {
	h := newHost(t)
	server, ips := h.pod("server")
	client, _ := h.pod("client")
	h.serve(server, "server", 80)
	conn, err := nftables.New()
	h.must(err)
	former, others := namesOf(testTable).former, &nftables.Table{Name: "mpt0-services", Family: nftables.TableFamilyBridge}
	has := func() (names []string) {
		all, err := conn.ListTablesOfFamily(nftables.TableFamilyBridge)
		h.must(err)
		for _, table := range all {
			names = append(names, table.Name)
		}
		slices.Sort(names)
		return names
	}
	leave := func() {
		for _, table := range []*nftables.Table{former, others} {
			conn.AddTable(table)
		}
		priority := nftables.ChainPriority(-250)
		c := conn.AddChain(&nftables.Chain{Table: former, Name: "prerouting", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting, Priority: &priority})
		conn.AddRule(&nftables.Rule{Table: former, Chain: c, Exprs: verdict(expr.VerdictDrop)})
		h.must(conn.Flush())
	}
	leave()
	t.Cleanup(func() { conn.DelTable(others); h.must(conn.Flush()) })
	to := at(vip4, 80).String()
	tbl := h.open(map[string]Service{"default/web": *balanced{fronts: []string{to}, endpoints: []netip.AddrPort{at(ips[0], 80)}}.service()})
	if got := has(); !slices.Equal(got, []string{others.Name}) {
		t.Errorf("of the family bridge there are %v", got)
	}
	if got := h.ask(client, to); !strings.HasPrefix(got, "server ") {
		t.Errorf("%q", got)
	}
	leave()
	h.must(tbl.Remove())
	if got := has(); !slices.Equal(got, []string{others.Name}) {
		t.Errorf("after Remove there are %v", got)
	}
}

// An address of a service that is the host's own, at which the host itself serves, as a cluster's DNS may: it is left alone, with endpoints and without.
func TestAServiceAtTheHostsOwnAddress(t *testing.T) {
	h := newHost(t)
	client, clientIPs := h.pod("client")
	lo, err := netlink.LinkByName("lo")
	h.must(err)
	addr, err := netlink.ParseAddr(vip4.String() + "/32")
	h.must(err)
	h.must(netlink.AddrAdd(lo, addr))
	to := at(vip4, 53).String()
	h.serveAt("", "host", to)
	with := balanced{fronts: []string{to}, endpoints: []netip.AddrPort{at(vip4, 53)}}.service()
	without := &Service{Plan: plan.Service{Inside: map[plan.Front]plan.Target{}, Addresses: []netip.Addr{vip4}}}
	for _, protocol := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
		without.Plan.Inside[plan.Front{Protocol: protocol, Addr: vip4, Port: 53}] = plan.Target{Action: plan.RejectElsewhere}
	}
	tbl := h.open(nil)
	for name, s := range map[string]*Service{"with an endpoint": with, "without": without} {
		h.apply(tbl, "kube-system/kube-dns", s)
		for _, c := range []struct{ from, as string }{{client, clientIPs[0].String()}, {"", vip4.String()}} {
			if got := h.ask(c.from, to); got != "host "+c.as {
				t.Errorf("%s, TCP from %q: %q", name, c.from, got)
			}
			if got := h.askUDP(h.client(c.from, to), "?"); !strings.HasPrefix(got, "host ") {
				t.Errorf("%s, UDP from %q: %q", name, c.from, got)
			}
		}
	}
}

// TestNftLists: whoever looks at the host's rules sees them, those of others as well. Debian 12's nft has not heard of what is done here, and must not abort.
func TestNftLists(t *testing.T) {
	h := newHost(t)
	_, ips := h.pod("one")
	to := []netip.AddrPort{at(ips[0], 80), at(ips[1], 80)}
	h.open(map[string]Service{
		"default/open":   *balanced{fronts: []string{at(vip4, 80).String(), at(vip6, 80).String(), ":30080"}, endpoints: to}.service(),
		"default/sticky": *balanced{fronts: []string{at(vip4, 81).String(), at(vip6, 81).String()}, endpoints: to, affinity: 60}.service(),
		"default/some":   *balanced{fronts: []string{at(vip4, 82).String(), at(vip6, 82).String()}, endpoints: to, ranges: []netip.Prefix{pods4, pods6}}.service(),
		"default/none":   *balanced{fronts: []string{at(vip4, 83).String(), at(vip6, 83).String()}}.service(),
	})
	harness.NftLists(t, "table inet "+testTable, "chain "+postroutingChain, "inside-one-of-1-for-60s-ipv6")
}
