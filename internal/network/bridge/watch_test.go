package bridge

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
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/lease"
	"monopod.dev/monopod/internal/network/links"
	"monopod.dev/monopod/internal/network/podnet"
	"monopod.dev/monopod/test/harness"
)

// whole waits until the rule set is as it should be. It changes nothing.
func (h *testHost) whole(b *Bridge, after string) {
	h.t.Helper()
	harness.Eventually(h.t, "after "+after+" the rules are there again", func() (bool, string) {
		err := b.rules.Check()
		return err == nil, fmt.Sprint(err)
	})
}

// localnet tells what route_localnet is of the host's ends of a network: "0", "1" or both.
func (h *testHost) localnet(b *Bridge) string {
	h.t.Helper()
	files, err := filepath.Glob("/proc/sys/net/ipv4/conf/" + lease.HostInterfacePrefix + "*/route_localnet")
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
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: dualRanges}})
	pod := h.sandbox("pod")
	h.connectPorts(b, "pod", pod, network.HostPort{Protocol: "TCP", HostPort: 8080, ContainerPort: 80})
	h.serve(pod, "0.0.0.0:80")
	conn, err := nftables.New()
	h.must(err)
	inet := &nftables.Table{Name: "mpt0", Family: nftables.TableFamilyINet}
	for name, harm := range map[string]func(){
		"nft flush ruleset":         conn.FlushRuleset,
		"deleting the table":        func() { conn.DelTable(inet) },
		"flushing the guard":        func() { conn.FlushChain(&nftables.Chain{Name: "guard", Table: inet}) },
		"flushing the source guard": func() { conn.FlushChain(&nftables.Chain{Name: "sources", Table: inet}) },
		"flushing the host ports":   func() { conn.FlushSet(&nftables.Set{Name: "any4", Table: inet}) },
		"flushing the sources":      func() { conn.FlushSet(&nftables.Set{Name: "from6", Table: inet}) },
		"putting a rule before the others": func() {
			conn.InsertRule(&nftables.Rule{Table: inet, Chain: &nftables.Chain{Name: "guard", Table: inet}, Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}})
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
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: testRanges}})
	pod := h.sandbox("pod")
	ip := h.setup(b, "pod", pod)
	if on := h.localnet(b); on != "1" {
		t.Fatalf("route_localnet is %s", on)
	}
	service := h.loopbackService()
	attacker := h.station(pod, []netip.Addr{ip})
	// A frame for 127.0.0.1 to the host's hardware address.
	packet := ethernet(links.MACOf(gateway4), attacker.mac, 0x0800, ipv4(ip, netip.MustParseAddr("127.0.0.1"), service.datagram("attack")))
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
	b := h.bridge(Config{Network: podnet.Network{Name: "mpt0", Ranges: dualRanges}})
	for i := range 5 {
		id := fmt.Sprint("s", i)
		path := h.sandbox(id)
		h.connectPorts(b, id, path, network.HostPort{Protocol: "TCP", HostPort: 8080, ContainerPort: 80})
		h.must(b.Teardown(t.Context(), ids.SandboxID(id)))
		h.drop(path)
	}
	h.inUse(b)
	h.must(b.Start(t.Context()))
	before := b.host.watcher.Looks()
	// A change of somebody else comes after all these events.
	conn, err := nftables.New()
	h.must(err)
	conn.FlushChain(&nftables.Chain{Name: "guard", Table: &nftables.Table{Name: "mpt0", Family: nftables.TableFamilyINet}})
	h.must(conn.Flush())
	harness.Eventually(t, "the watcher looks", func() (bool, string) { return b.host.watcher.Looks() > before, "" })
	h.whole(b, "flushing the guard")
	if before != 0 {
		t.Errorf("own changes have made the watcher look %d times", before)
	}
}
