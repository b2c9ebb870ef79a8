package harness

import (
	"net"
	"net/netip"
	"testing"
)

func TestPodRange(t *testing.T) {
	var first netip.Prefix
	t.Run("taken", func(t *testing.T) {
		seen := map[netip.Prefix]bool{}
		for range 20 {
			r := PodRange(t)
			if seen[r] || r.Bits() != 24 || !podRanges.Overlaps(r) {
				t.Errorf("%s, after %v", r, seen)
			}
			seen[r] = true
			if !first.IsValid() {
				first = r
			}
		}
	})
	// The other tests' end has freed them, as the end of another process would.
	l, err := net.Listen("unix", "@monopod-test-pods-"+first.String())
	if err != nil {
		t.Fatalf("%s is not free again: %v", first, err)
	}
	defer l.Close()
	if r := PodRange(t); r == first {
		t.Errorf("%s is taken by another", r)
	}
	for address, want := range map[string]bool{"10.200.1.7/24": true, "10.0.0.1/8": true, "10.200.2.1/24": false, "fd00::1/64": false} {
		if got := inUse(netip.MustParsePrefix("10.200.1.0/24"), []net.Addr{&net.IPNet{IP: netip.MustParsePrefix(address).Addr().AsSlice(), Mask: net.CIDRMask(netip.MustParsePrefix(address).Bits(), netip.MustParsePrefix(address).Addr().BitLen())}}); got != want {
			t.Errorf("beside %s: in use %v, want %v", address, got, want)
		}
	}
}
