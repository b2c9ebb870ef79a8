package announce

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"

	"monopod.dev/monopod/test/harness"
)

// ofNode says that an interface group is a node's.
func ofNode(group uint32) bool { return group>>24 == 0x6d }

// device makes an interface of a group, that is up.
func device(tb testing.TB, name string, group uint32, addresses ...string) netlink.Link {
	tb.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Group = name, group
	l := &netlink.Bridge{LinkAttrs: attrs}
	err := netlink.LinkAdd(l)
	if err == nil {
		err = give(name, addresses...)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// What nodes of the host have made is no network outside: neither a bridge that has addresses, nor the host's ends of pods' interfaces.
func TestNodesOwnInterfacesAreLeftOut(t *testing.T) {
	n := newNetwork(t)
	for i, group := range []uint32{0x6d706272, 0x6d000001, 0x6dffffff} {
		l := device(t, fmt.Sprint("own", i), group, fmt.Sprintf("2001:db8:%d::1/64", i+1), fmt.Sprintf("198.51.%d.1/24", i+1))
		t.Cleanup(func() { n.must(netlink.LinkDel(l)) })
	}
	links := func(own func(uint32) bool) (names []string) {
		a, err := Open(Config{Dir: n.dir, Own: own})
		n.must(err)
		defer a.Close()
		all, _, err := a.look()
		n.must(err)
		for _, l := range all {
			names = append(names, l.name)
		}
		return names
	}
	if got := links(ofNode); len(got) != 1 || got[0] != "up0" {
		t.Errorf("addresses are announced on %v", got)
	}
	if got := links(nil); len(got) != 4 {
		t.Errorf("without nodes addresses are announced on %v", got)
	}
}

// BenchmarkLook is a look at what the host has, with the host's ends of so many pods.
func BenchmarkLook(b *testing.B) {
	for _, pods := range []int{0, 1000} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			harness.NewNetwork(b)
			device(b, "up0", 0, "192.0.2.1/24", "2001:db8::1/64")
			device(b, "mp0", 0x6d706272, "10.88.0.1/32")
			path := filepath.Join(b.TempDir(), "pods")
			harness.PinNetNS(b, path)
			ns, err := os.Open(path)
			if err != nil {
				b.Fatal(err)
			}
			defer ns.Close()
			for i := range pods {
				attrs := netlink.NewLinkAttrs()
				attrs.Name, attrs.Group = fmt.Sprintf("mp%012x", i), 0x6d000001
				if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: fmt.Sprint("eth", i), PeerNamespace: netlink.NsFd(int(ns.Fd()))}); err != nil {
					b.Fatal(err)
				}
			}
			a, err := Open(Config{Dir: b.TempDir(), Own: ofNode})
			if err != nil {
				b.Fatal(err)
			}
			defer a.Close()
			for b.Loop() {
				links, has, err := a.look()
				if err != nil || len(links) != 1 || !has[netip.MustParseAddr("10.88.0.1")].alone {
					b.Fatal(links, has, err)
				}
			}
		})
	}
}
