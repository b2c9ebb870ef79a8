package bridge

import (
	"fmt"
	"net"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network/lease"
	"monopod.dev/monopod/internal/network/podnet"
	"monopod.dev/monopod/test/harness"
)

// mtuOf is the MTU of an interface in a namespace; "" is the host.
func (h *testHost) mtuOf(path, name string) (mtu int) {
	h.t.Helper()
	h.at(path, func() error {
		l, err := net.InterfaceByName(name)
		if err == nil {
			mtu = l.MTU
		}
		return err
	})
	return mtu
}

// TestMTUFollowsTheUplink: the bridge, its ports and the pods, those that are there too, have the MTU of the interface of the default route, which may come late,
// change, and be replaced; a process that was not there meanwhile makes up for it.
func TestMTUFollowsTheUplink(t *testing.T) {
	h := newHost(t)
	cfg := Config{Network: podnet.Network{Name: "mpt0", Ranges: testRanges}, DB: h.openDB("one.db")}
	b := h.bridge(cfg)
	pods := map[ids.SandboxID]string{"one": h.sandbox("one"), "two": h.sandbox("two")}
	h.connectPorts(b, "one", pods["one"])
	follows := func(what string, want int, names ...string) {
		t.Helper()
		for _, name := range names {
			harness.Eventually(t, fmt.Sprintf("%s: the MTU of pod %s is %d", what, name, want), func() (bool, string) {
				seen := [3]int{h.mtuOf("", "mpt0"), h.mtuOf("", lease.HostInterface("mpt0", ids.SandboxID(name))), h.mtuOf(pods[ids.SandboxID(name)], "eth0")}
				return seen == [3]int{want, want, want}, fmt.Sprint(seen)
			})
		}
	}
	follows("without a network", 1500, "one")
	h.network("0", "192.168.77.0/30")
	h.network("1", "192.168.78.0/30")
	uplinks := map[string]netlink.Link{}
	for name, gw := range map[string]string{"0": "192.168.77.1", "1": "192.168.78.1"} {
		addrs, err := netlink.AddrList(nil, unix.AF_INET)
		h.must(err)
		for _, a := range addrs {
			if a.IP.String() == gw {
				uplinks[name], err = netlink.LinkByIndex(a.LinkIndex)
				h.must(err)
			}
		}
	}
	h.must(netlink.LinkSetMTU(uplinks["0"], 1400))
	h.must(netlink.LinkSetMTU(uplinks["1"], 1380))
	route := &netlink.Route{LinkIndex: uplinks["0"].Attrs().Index, Gw: net.ParseIP("192.168.77.2")}
	h.must(netlink.RouteAdd(route))
	follows("the network comes late", 1400, "one")
	h.connectPorts(b, "two", pods["two"])
	follows("a new pod", 1400, "one", "two")
	h.must(netlink.LinkSetMTU(uplinks["0"], 1420))
	follows("the MTU changes", 1420, "one", "two")
	h.must(netlink.RouteReplace(&netlink.Route{LinkIndex: uplinks["1"].Attrs().Index, Gw: net.ParseIP("192.168.78.2")}))
	follows("another uplink", 1380, "one", "two")

	h.unwatched(b)
	b.host.uplink.Close()
	b.host.uplink = nil
	h.must(netlink.LinkSetMTU(uplinks["1"], 1350))
	b = h.bridge(cfg)
	h.must(b.Reconcile(t.Context(), pods))
	follows("after a restart", 1350, "one", "two")
}
