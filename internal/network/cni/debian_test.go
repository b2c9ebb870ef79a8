package cni

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
)

// debianList is what an operator of a small node writes, for Debian's plugins, which speak up to version 1.0.0.
const debianList = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [
	{"type": "bridge", "bridge": "cbr0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
		"ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.203.0.0/24"}], [{"subnet": "fd63::/64"}]],
			"routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}},
	{"type": "portmap", "capabilities": {"portMappings": true}, "snat": true},
	{"type": "bandwidth", "capabilities": {"bandwidth": true}}]}`

func (h *testHost) leases() (found []string) {
	h.Helper()
	all, err := filepath.Glob(filepath.Join(h.dir, "ipam", "pods", "*"))
	h.must(err)
	for _, path := range all {
		if _, err := netip.ParseAddr(filepath.Base(path)); err == nil {
			found = append(found, filepath.Base(path))
		}
	}
	return found
}

// outside joins a namespace to the host by a link of its own: the host is 192.168.78.1, the machine .2.
func (h *testHost) outside() string {
	h.Helper()
	path := h.sandbox("outside")
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "up0"
	h.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "down0"}))
	up, err := netlink.LinkByName("up0")
	h.must(err)
	addr, err := netlink.ParseAddr("192.168.78.1/30")
	h.must(err)
	h.must(netlink.AddrAdd(up, addr))
	h.must(netlink.LinkSetUp(up))
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
		addr, err := netlink.ParseAddr("192.168.78.2/30")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(peer, addr); err != nil {
			return err
		}
		return netlink.LinkSetUp(peer)
	})
	return path
}

func TestDebianPlugins(t *testing.T) {
	h := newHost(t)
	h.write("conf/10-pods.conflist", fmt.Sprintf(debianList, filepath.Join(h.dir, "ipam")))
	n := h.open(nil, Bounds{})
	h.must(n.Status(t.Context()))
	outside := h.outside()
	one, two := h.sandbox("one"), h.sandbox("two")

	req := request("one", one)
	req.HostPorts = []network.HostPort{{Protocol: "TCP", HostPort: 8080, ContainerPort: 80}, {Protocol: "UDP", HostPort: 5353, ContainerPort: 53, HostIP: netip.MustParseAddr("192.168.78.1")}}
	req.Annotations = map[string]string{ingressAnnotation: "10M", egressAnnotation: "1Gi"}
	req.DNS = &network.DNS{Servers: []string{"10.0.0.10"}}
	res, err := n.Setup(t.Context(), req)
	h.must(err)
	again, err := n.Setup(t.Context(), req)
	h.must(err)
	if !slices.Equal(res.IPs, again.IPs) || len(res.IPs) != 2 || !res.IPs[0].Is4() || !res.IPs[1].Is6() || res.Gateway.String() != "10.203.0.1" || res.Interface != "eth0" {
		t.Fatalf("result %+v, then %+v", res, again)
	}
	other := h.setup(n, "two", two)

	h.serve(one, "[::]:80")
	for _, ip := range res.IPs {
		if seen := h.ask(two, net.JoinHostPort(ip.String(), "80")); !slices.Contains(other.IPs, seen.Unmap()) {
			t.Errorf("%s saw two as %s, which has %v", ip, seen, other.IPs)
		}
	}
	if seen := h.ask(one, "127.0.0.1:80"); seen.Unmap().String() != "127.0.0.1" {
		t.Errorf("loopback is seen as %s", seen)
	}
	if seen := h.ask(outside, "192.168.78.1:8080"); seen.Unmap().String() != "192.168.78.2" {
		t.Errorf("through the host port the outside is seen as %s", seen)
	}
	h.ask(two, "192.168.78.1:8080")
	h.ask(one, "192.168.78.1:8080") // hairpin

	// The bandwidth's limits: ingress on the host's end of the pair, egress on a device of its own.
	rates := map[uint64]bool{}
	links, err := netlink.LinkList()
	h.must(err)
	for _, l := range links {
		qdiscs, err := netlink.QdiscList(l)
		h.must(err)
		for _, q := range qdiscs {
			if tbf, ok := q.(*netlink.Tbf); ok {
				rates[tbf.Rate*8] = true
			}
		}
	}
	if !rates[10e6] || !rates[1<<30] {
		t.Errorf("rates %v", rates)
	}

	before, err := n.InterfaceStats(t.Context(), map[ids.SandboxID]string{"one": one})
	h.must(err)
	h.ask(two, res.IPs[0].String()+":80")
	after, err := n.InterfaceStats(t.Context(), map[ids.SandboxID]string{"one": one, "gone": filepath.Join(h.dir, "none")})
	h.must(err)
	if len(after) != 1 || len(before["one"]) != 1 || len(after["one"]) != 1 || after["one"][0].Name != "eth0" || after["one"][0].RxBytes <= before["one"][0].RxBytes ||
		after["one"][0].TxPackets <= before["one"][0].TxPackets {
		t.Errorf("stats %+v, then %+v", before, after)
	}

	if got := h.leases(); len(got) != 4 {
		t.Errorf("leases %v", got)
	}
	for _, id := range []string{"one", "one", "two"} {
		h.must(n.Teardown(t.Context(), ids.SandboxID(id)))
	}
	if got := h.leases(); len(got) != 0 {
		t.Errorf("leases are left: %v", got)
	}
	if n.Has("one") {
		t.Error("the record is left")
	}
	if rules := h.run("iptables-save"); strings.Contains(rules, "8080") || strings.Contains(rules, res.IPs[0].String()) {
		t.Errorf("rules are left:\n%s", rules)
	}
	h.in(one, func() error {
		if _, err := netlink.LinkByName("eth0"); err == nil {
			t.Error("eth0 is left")
		}
		return nil
	})
}

// TestPodRangesAndCheck: what a cluster gives reaches plugins with the capability, also after a restart.
func TestPodRangesAndCheck(t *testing.T) {
	h := newHost(t)
	h.write("conf/10-pods.conflist", fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cbr0", "capabilities": {"ipRanges": true},
		"ipam": {"type": "host-local", "dataDir": %q}}]}`, filepath.Join(h.dir, "ipam")))
	db := h.openDB("state.db")
	n := h.open(db, Bounds{})
	if _, err := n.Setup(t.Context(), request("early", h.sandbox("early"))); err == nil || !strings.Contains(err.Error(), "plugin bridge") {
		t.Errorf("without any range: %v", err)
	}
	if n.Has("early") {
		t.Error("a failed Setup left a record")
	}
	ranges := []netip.Prefix{netip.MustParsePrefix("10.204.3.0/24"), netip.MustParsePrefix("fd64::/64")}
	h.must(n.UpdatePodCIDR(t.Context(), ranges))
	n = h.open(db, Bounds{})
	res := h.setup(n, "a", h.sandbox("a"))
	if len(res.IPs) != 2 || !ranges[0].Contains(res.IPs[0]) || !ranges[1].Contains(res.IPs[1]) {
		t.Errorf("addresses %v", res.IPs)
	}
	// CHECK finds what was made, and says what is not there any more. (Debian's portmap and bandwidth would be wrong about it.)
	h.must(n.check("a"))
	h.in(filepath.Join(h.dir, "ns-a"), func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetDown(eth0); err != nil { // kernels before 6.2 rename no link that is up
			return err
		}
		return netlink.LinkSetName(eth0, "lost0")
	})
	if err := n.check("a"); err == nil || !strings.Contains(err.Error(), "plugin bridge") {
		t.Errorf("CHECK of a sandbox without eth0: %v", err)
	}
	if err := n.UpdatePodCIDR(t.Context(), []netip.Prefix{{}}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("no range: %v", err)
	}
}

// TestCost tells what a sandbox's network costs with Debian's bridge and host-local, to compare with the built-in network's.
func TestCost(t *testing.T) {
	h := newHost(t)
	h.write("conf/10-pods.conflist", fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cbr0", "isGateway": true,
		"ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.203.0.0/24"}]]}}]}`, filepath.Join(h.dir, "ipam")))
	n := h.open(nil, Bounds{})
	var adds, dels []time.Duration
	for range 11 {
		ns := h.sandbox("s")
		begin := time.Now()
		h.setup(n, "s", ns)
		adds = append(adds, time.Since(begin))
		begin = time.Now()
		h.must(n.Teardown(t.Context(), "s"))
		dels = append(dels, time.Since(begin))
		h.drop(ns)
	}
	slices.Sort(adds)
	slices.Sort(dels)
	t.Logf("ADD best %v p50 %v, DEL best %v p50 %v", adds[0], adds[5], dels[0], dels[5])
	if adds[5] > 5*time.Second {
		t.Errorf("ADD takes %v", adds[5])
	}
}
