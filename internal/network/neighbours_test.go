package network

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// learned lists what was written down of neighbours in a network namespace: addresses with their hardware addresses.
func (h *testHost) learned(device string) (all []string) {
	h.t.Helper()
	link, err := netlink.LinkByName(device)
	h.must(err)
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		entries, err := netlink.NeighList(link.Attrs().Index, family)
		h.must(err)
		for _, n := range entries {
			if n.Flags&unix.NTF_EXT_LEARNED != 0 {
				all = append(all, n.IP.String()+" at "+n.HardwareAddr.String())
			}
		}
	}
	slices.Sort(all)
	return all
}

// The host and a sandbox know each other without asking, by entries that do not count against the kernel's limit; those of sandboxes that are gone go.
func TestNeighboursAreWrittenDown(t *testing.T) {
	h := newHost(t)
	b := h.bridge(Config{Bridge: "mpt0", PodCIDRs: dualRanges})
	path := h.sandbox("a")
	res, err := b.Setup(t.Context(), Request{SandboxID: "a", NetNS: path})
	h.must(err)
	at := func(ip netip.Addr, mac net.HardwareAddr) string { return ip.String() + " at " + mac.String() }
	mac := macOf(res.IPs[0])
	want := []string{at(res.IPs[0], mac), at(res.IPs[1], mac)}
	slices.Sort(want)
	if got := h.learned("mpt0"); !slices.Equal(got, want) {
		t.Errorf("the host knows %q, want %q", got, want)
	}
	want = []string{at(gateway4, macOf(gateway4)), at(gateway6, macOf(gateway4))}
	slices.Sort(want)
	h.in(path, func() error {
		if got := h.learned(containerInterface); !slices.Equal(got, want) {
			t.Errorf("the sandbox knows %q, want %q", got, want)
		}
		return nil
	})
	h.must(b.Teardown(t.Context(), "a"))
	h.drop(path)
	h.must(b.Reconcile(t.Context(), nil))
	if got := h.learned("mpt0"); len(got) != 0 {
		t.Errorf("the host still knows %q", got)
	}
}
