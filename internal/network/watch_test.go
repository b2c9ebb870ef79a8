package network

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/failpoint"
	"monopod.dev/monopod/internal/host/nlsock"
	"monopod.dev/monopod/internal/host/ruleset"
	"monopod.dev/monopod/test/harness"
)

// whole waits until the rule set is as it should be. It changes nothing.
func (h *testHost) whole(b *Bridge, after string) {
	h.t.Helper()
	harness.Eventually(h.t, "after "+after+" the rules are there again", func() (bool, string) {
		err := b.withFirewall((*firewall).check)
		return err == nil, fmt.Sprint(err)
	})
}

// localnet tells what route_localnet is of the host's ends of a network: "0", "1" or both.
func (h *testHost) localnet(b *Bridge) string {
	h.t.Helper()
	files, err := filepath.Glob("/proc/sys/net/ipv4/conf/" + hostInterfacePrefix + "*/route_localnet")
	h.must(err)
	found := map[string]bool{}
	for _, file := range files {
		if strings.Contains(file, "/"+b.name+"/") {
			continue
		}
		raw, err := os.ReadFile(file)
		h.must(err)
		found[strings.TrimSpace(string(raw))] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(found)), " and ")
}

// What somebody takes away of the rules is there again at once, without anybody asking for Status.
func TestFlushedRulesAreRepaired(t *testing.T) {
	h := newHost(t)
	b := h.bridge(Config{Bridge: "mpt0", PodCIDRs: dualRanges})
	pod := h.sandbox("pod")
	h.connectPorts(b, "pod", pod, HostPort{"TCP", netip.Addr{}, 8080, 80})
	h.serve(pod, "0.0.0.0:80")
	conn, err := nftables.New()
	h.must(err)
	inet := &nftables.Table{Name: "mpt0", Family: nftables.TableFamilyINet}
	for name, harm := range map[string]func(){
		"nft flush ruleset":         conn.FlushRuleset,
		"deleting the table":        func() { conn.DelTable(inet) },
		"flushing the guard":        func() { conn.FlushChain(&nftables.Chain{Name: guardChain, Table: inet}) },
		"flushing the source guard": func() { conn.FlushChain(&nftables.Chain{Name: sourcesChain, Table: inet}) },
		"flushing the host ports":   func() { conn.FlushSet(&nftables.Set{Name: "any4", Table: inet}) },
		"flushing the sources":      func() { conn.FlushSet(&nftables.Set{Name: "from6", Table: inet}) },
		"putting a rule before the others": func() {
			conn.InsertRule(&nftables.Rule{Table: inet, Chain: &nftables.Chain{Name: guardChain, Table: inet}, Exprs: verdict(expr.VerdictAccept)})
		},
	} {
		harm()
		begin := time.Now()
		h.must(conn.Flush())
		h.whole(b, name)
		t.Logf("%s: %v", name, time.Since(begin))
		harness.Eventually(t, "the way to the loopback addresses is open again", func() (bool, string) {
			return h.localnet(b) == "1", h.localnet(b)
		})
		if _, err := h.tryAsk("", "127.0.0.1:8080"); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
	}
	h.must(b.Remove(t.Context()))
	// Remove is the last word: nobody brings anything back.
	tables, err := conn.ListTables()
	if err != nil || len(tables) != 0 {
		t.Errorf("tables %v, %v", tables, err)
	}
}

// A pod does not reach what listens on the host's loopback addresses, also while somebody takes the guard away; and the way
// there is closed for as long as the guard cannot be brought back.
func TestLoopbackIsClosedWithoutItsGuard(t *testing.T) {
	h := newHost(t)
	b := h.bridge(Config{Bridge: "mpt0", PodCIDRs: testRanges})
	pod := h.sandbox("pod")
	ip := h.setup(b, "pod", pod)
	if on := h.localnet(b); on != "1" {
		t.Fatalf("route_localnet is %s", on)
	}
	service := h.loopbackService()
	attacker := h.station(pod, []netip.Addr{ip})
	// A frame for 127.0.0.1 to the host's hardware address.
	packet := ethernet(macOf(gateway4), attacker.mac, 0x0800, ipv4(ip, netip.MustParseAddr("127.0.0.1"), service.datagram("attack")))
	conn, err := nftables.New()
	h.must(err)
	h.unwatched(b)
	conn.FlushRuleset()
	h.must(conn.Flush())
	attacker.send(packet)
	if !service.sees(t, "mine", "attack") {
		t.Error("without guard and watcher the attack does not succeed; this test tests nothing")
	}
	h.must(b.Start(t.Context()))
	attacker.send(packet)
	if service.sees(t, "mine", "attack") {
		t.Error("a pod has reached a service of the host's loopback address")
	}
	disarm := failpoint.Arm("network/firewall/install", func() error { return errors.New("no memory") })
	conn.FlushRuleset()
	h.must(conn.Flush())
	closed := func() (bool, string) { return h.localnet(b) == "0", h.localnet(b) }
	harness.Eventually(t, "the way to the loopback addresses is closed", closed)
	attacker.send(packet)
	if service.sees(t, "mine", "attack") {
		t.Error("without its guard, a pod has reached a service of the host's loopback address")
	}
	if err := b.Status(t.Context()); err == nil {
		t.Error("the network is ready without its rules")
	}
	if ok, _ := closed(); !ok {
		t.Error("a Status that fails opens the way")
	}
	disarm()
	h.must(b.Status(t.Context()))
	harness.Eventually(t, "the way to the loopback addresses is open again", func() (bool, string) {
		return h.localnet(b) == "1", h.localnet(b)
	})
	attacker.send(packet)
	if service.sees(t, "mine", "attack") {
		t.Error("after the repair a pod has reached a service of the host's loopback address")
	}
}

// loopbackService is a UDP socket of the host at a loopback address.
type loopbackService struct {
	fd   int
	port uint16
}

func (h *testHost) loopbackService() loopbackService {
	h.t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	h.must(err)
	h.t.Cleanup(func() { unix.Close(fd) })
	h.must(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	name, err := unix.Getsockname(fd)
	h.must(err)
	return loopbackService{fd, uint16(name.(*unix.SockaddrInet4).Port)}
}

// datagram is a UDP packet to the service, without a checksum.
func (s loopbackService) datagram(text string) []byte {
	return append([]byte{9, 9, byte(s.port >> 8), byte(s.port), 0, byte(8 + len(text)), 0, 0}, text...)
}

// sees says whether the other text came before the one that is sent now.
func (s loopbackService) sees(t *testing.T, own, other string) (seen bool) {
	t.Helper()
	if err := unix.Sendto(s.fd, []byte(own), 0, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: int(s.port)}); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	for {
		n, _, err := unix.Recvfrom(s.fd, buf, 0)
		if err != nil {
			t.Fatal(err)
		}
		switch string(buf[:n]) {
		case own:
			return seen
		case other:
			seen = true
		}
	}
}

// Nobody looks at the rules because of what the node does itself.
func TestOwnChangesWakeNobody(t *testing.T) {
	h := newHost(t)
	b := h.bridge(Config{Bridge: "mpt0", PodCIDRs: dualRanges})
	for i := range 5 {
		id := fmt.Sprint("s", i)
		path := h.sandbox(id)
		h.connectPorts(b, id, path, HostPort{"TCP", netip.Addr{}, 8080, 80})
		h.must(b.Teardown(t.Context(), id))
		h.drop(path)
	}
	h.inUse(b)
	h.must(b.Start(t.Context()))
	before := b.watcher.Looks()
	// A change of somebody else comes after all these events.
	conn, err := nftables.New()
	h.must(err)
	conn.FlushChain(&nftables.Chain{Name: guardChain, Table: &nftables.Table{Name: "mpt0", Family: nftables.TableFamilyINet}})
	h.must(conn.Flush())
	harness.Eventually(t, "the watcher looks", func() (bool, string) { return b.watcher.Looks() > before, "" })
	h.whole(b, "flushing the guard")
	if before != 0 {
		t.Errorf("own changes have made the watcher look %d times", before)
	}
}

// It is pure.
func TestConcernOfEvents(t *testing.T) {
	name := func(attr int, v string) []byte { return nl.NewRtAttr(attr, nl.ZeroTerminated(v)).Serialize() }
	event := func(family byte, attrs ...[]byte) []byte {
		b := []byte{family, 0, 0, 0}
		for _, a := range attrs {
			b = append(b, a...)
		}
		return b
	}
	hook := nlsock.Nested(unix.NFTA_CHAIN_HOOK|unix.NLA_F_NESTED, nl.NewRtAttr(unix.NFTA_HOOK_HOOKNUM, make([]byte, 4))).Serialize()
	foreign := map[chainName]bool{{unix.NFPROTO_IPV4, "filter", "FORWARD"}: true}
	for what, c := range map[string]struct {
		kind uint16
		body []byte
		want ruleset.Concern
	}{
		"own table deleted":             {unix.NFT_MSG_DELTABLE, event(unix.NFPROTO_INET, name(1, "mpt0")), ruleset.Touched},
		"own bridge table deleted":      {unix.NFT_MSG_DELTABLE, event(unix.NFPROTO_BRIDGE, name(1, "mpt0")), ruleset.Touched},
		"own rule deleted":              {unix.NFT_MSG_DELRULE, event(unix.NFPROTO_INET, name(1, "mpt0"), name(2, "guard")), ruleset.Touched},
		"own element deleted":           {unix.NFT_MSG_DELSETELEM, event(unix.NFPROTO_BRIDGE, name(1, "mpt0"), name(2, "from4")), ruleset.Touched},
		"own chain deleted":             {unix.NFT_MSG_DELCHAIN, event(unix.NFPROTO_INET, name(1, "mpt0"), hook), ruleset.Touched},
		"a table of that name, ip":      {unix.NFT_MSG_DELTABLE, event(unix.NFPROTO_IPV4, name(1, "mpt0")), ruleset.Untouched},
		"another table":                 {unix.NFT_MSG_DELTABLE, event(unix.NFPROTO_INET, name(1, "mpt1")), ruleset.Untouched},
		"another's elements":            {unix.NFT_MSG_NEWSETELEM, event(unix.NFPROTO_IPV4, name(1, "kube-proxy"), name(2, "x")), ruleset.Untouched},
		"another's base chain":          {unix.NFT_MSG_NEWCHAIN, event(unix.NFPROTO_IPV4, name(1, "filter"), hook), ruleset.Elsewhere},
		"another's chain":               {unix.NFT_MSG_NEWCHAIN, event(unix.NFPROTO_IPV4, name(1, "filter")), ruleset.Untouched},
		"a rule in a chain that counts": {unix.NFT_MSG_NEWRULE, event(unix.NFPROTO_IPV4, name(1, "filter"), name(2, "FORWARD")), ruleset.Elsewhere},
		"a rule elsewhere":              {unix.NFT_MSG_NEWRULE, event(unix.NFPROTO_IPV4, name(1, "filter"), name(2, "INPUT")), ruleset.Untouched},
		"the end of a transaction":      {unix.NFT_MSG_NEWGEN, event(unix.NFPROTO_UNSPEC, name(1, "mpt0")), ruleset.Untouched},
		"nothing":                       {unix.NFT_MSG_DELTABLE, nil, ruleset.Untouched},
	} {
		var got ruleset.Concern
		if e, ok := ruleset.ParseEvent(unix.NFNL_SUBSYS_NFTABLES<<8|c.kind, c.body); ok {
			got = concernOf(e, "mpt0", foreign)
		}
		if got != c.want {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}
