package announce

import (
	"net"
	"net/netip"
	"testing"
)

func TestARP(t *testing.T) {
	own, other := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	none := netip.IPv4Unspecified()
	for name, c := range map[string]struct {
		packet []byte
		of     netip.Addr // the zero value: it says nothing
	}{
		"who has an address and says so": {arpAsking(other, v4, v4), v4},
		"who has it and asks":            {arpAsking(other, v4, netip.MustParseAddr("192.0.2.1")), v4},
		"who probes for it":              {arpAsking(other, none, v4), v4},
		"oneself":                        {arpAsking(own, none, v4), netip.Addr{}},
		"short":                          {arpAsking(other, v4, v4)[:27], netip.Addr{}},
		"of another network":             {append([]byte{0, 6}, arpAsking(other, v4, v4)[2:]...), netip.Addr{}},
		"padded, as frames are":          {append(arpAsking(other, v4, v4), make([]byte, 18)...), v4},
	} {
		of, by, ok := arpClaim(c.packet, own)
		if ok != c.of.IsValid() || ok && (of != c.of || by.String() != other.String()) {
			t.Errorf("%s: %s of %s, %v, want %s", name, of, by, ok, c.of)
		}
	}
	answer := arpAsking(other, none, v4)
	answer[7] = 2
	if of, _, ok := arpClaim(answer, own); ok {
		t.Errorf("an answer from nobody says that %s is in use", of)
	}
}

// Whatever neighbours send is read, or is none of an address.
func FuzzARP(f *testing.F) {
	own := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	f.Add(arpAsking(net.HardwareAddr{2, 0, 0, 0, 0, 2}, v4, v4))
	f.Add([]byte{0, 1, 8, 0, 6, 4})
	f.Fuzz(func(t *testing.T, packet []byte) {
		of, by, ok := arpClaim(packet, own)
		if ok && (!of.Is4() || len(by) != 6) {
			t.Errorf("%s of %s", of, by)
		}
	})
}
