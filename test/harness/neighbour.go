package harness

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// IPv4 and IPv6 are the families, as services name them.
const IPv4, IPv6 = "IPv4", "IPv6"

// Neighbour is another machine beside a node: a network namespace at the other end of a link. It is gone at the end of the test.
type Neighbour struct {
	// NetNS is the path of its network namespace.
	NetNS string
	// Node are the node's addresses on the link by their families, Own are the neighbour's.
	Node, Own map[string]netip.Addr
	// Link is the name of the node's end of the link; the neighbour's is eth0.
	Link string
}

// NewNeighbour makes one. The node gets the link's addresses by --node-ip and --agent-address.
func NewNeighbour(t testing.TB, n *Node) *Neighbour {
	t.Helper()
	// The link's ranges follow from that of the node's pods, which nobody else has.
	pods := netip.MustParsePrefix(n.PodCIDR).Addr().As4()
	four := netip.AddrFrom4([4]byte{10, pods[1] + 16, pods[2], 1})
	six := netip.AddrFrom16([16]byte{0xfd, 0x6d, 0x70, 3, pods[1], pods[2], 15: 1})
	b := &Neighbour{NetNS: filepath.Join(t.TempDir(), "net"), Node: map[string]netip.Addr{IPv4: four, IPv6: six}, Own: map[string]netip.Addr{IPv4: four.Next(), IPv6: six.Next()}}
	PinNetNS(t, b.NetNS)
	ns, err := os.Open(b.NetNS)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	b.Link = fmt.Sprintf("mpo%dx%d", pods[1], pods[2])
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: b.Link}, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(ns.Fd()))}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(veth) })
	if err := linkUp(b.Link, b.Node); err != nil {
		t.Fatal(err)
	}
	if err := InNetNS(b.NetNS, func() error { return linkUp("eth0", b.Own) }); err != nil {
		t.Fatal(err)
	}
	return b
}

func linkUp(name string, addresses map[string]netip.Addr) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		bits := 24
		if a.Is6() {
			bits = 64
		}
		if err := netlink.AddrAdd(l, &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(bits, a.BitLen())}, Flags: unix.IFA_F_NODAD}); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(l)
}
