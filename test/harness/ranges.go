package harness

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// podRanges is where the tests' nodes have their pods: each a /24.
var podRanges = netip.MustParsePrefix("10.200.0.0/13")

// PodRange returns a range for the pods of a node, until the end of the test: one that no other test of this host has, whichever process it
// runs in, and in which the host has no address. A range is taken by a unix socket with an abstract name, which ends with its process
// however that ends, and leaves nothing.
func PodRange(t testing.TB) netip.Prefix {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatalf("list addresses: %v", err)
	}
	const ranges = 1 << (24 - 13)
	base := podRanges.Addr().As4()
	for i := range ranges {
		n := (os.Getpid()*8 + i) % ranges // side by side, processes look at different places first
		r := netip.PrefixFrom(netip.AddrFrom4([4]byte{base[0], base[1] + byte(n>>8), byte(n), 0}), 24)
		if inUse(r, addresses) {
			continue
		}
		l, err := net.Listen("unix", "@monopod-test-pods-"+r.String())
		if errors.Is(err, unix.EADDRINUSE) {
			continue
		}
		if err != nil {
			t.Fatalf("take the range %s: %v", r, err)
		}
		t.Cleanup(func() { l.Close() })
		return r
	}
	t.Fatalf("all of %s is taken by tests of this host", podRanges)
	return netip.Prefix{}
}

// serviceRange is the range of services of the node with a range of pods: who has the one has the other. The addresses of the cluster's DNS are the
// host's, so no two nodes of a host can have the same.
func serviceRange(pods string) string {
	r := netip.MustParsePrefix(pods)
	a := r.Addr().As4()
	a[1] += 1 << (16 - 13) // behind podRanges
	return netip.PrefixFrom(netip.AddrFrom4(a), r.Bits()).String()
}

func inUse(r netip.Prefix, addresses []net.Addr) bool {
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Masked().Overlaps(r) {
			return true
		}
	}
	return false
}
