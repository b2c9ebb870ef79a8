package iprange

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.64/28":             "192.0.2.64-192.0.2.79",
		"192.0.2.9":                 "192.0.2.9",
		"192.0.2.9/32":              "192.0.2.9",
		"192.0.2.9 - 192.0.2.12":    "192.0.2.9-192.0.2.12",
		"2001:db8::10/124":          "2001:db8::10-2001:db8::1f",
		"2001:db8::1-2001:db8::2":   "2001:db8::1-2001:db8::2",
		"0.0.0.0/0":                 "0.0.0.0-255.255.255.255",
		"192.0.2.1/28":              "error: host bits set: 192.0.2.0/28",
		"192.0.2.9-2001:db8::1":     "error: two families",
		"192.0.2.9-192.0.2.8":       "error: ends before it begins",
		"fe80::1%eth0":              "error: zone",
		"::ffff:192.0.2.1":          "error: IPv4 written as IPv6",
		"192.0.2.1-192.0.2.3-4":     "error: 192.0.2.3-4",
		"":                          "error: unable to parse IP",
		"192.0.2.0/28-192.0.2.0/29": "error: unexpected character",
	} {
		r, err := Parse(text)
		if wanted, fails := strings.CutPrefix(want, "error: "); fails {
			if err == nil || !strings.Contains(err.Error(), wanted) {
				t.Errorf("%q: %v, %v, want an error with %q", text, r, err, wanted)
			}
		} else if err != nil || r.String() != want {
			t.Errorf("%q: %v, %v, want %s", text, r, err, want)
		}
	}
}

func TestContainsAndOverlaps(t *testing.T) {
	r := Range{netip.MustParseAddr("192.0.2.4"), netip.MustParseAddr("192.0.2.7")}
	for a, want := range map[string]bool{"192.0.2.3": false, "192.0.2.4": true, "192.0.2.7": true, "192.0.2.8": false, "::": false} {
		if got := r.Contains(netip.MustParseAddr(a)); got != want {
			t.Errorf("%s in %s: %v", a, r, got)
		}
	}
	for p, want := range map[string]bool{"192.0.2.0/30": false, "192.0.2.0/24": true, "192.0.2.5/32": true, "192.0.2.8/29": false, "::/0": false} {
		o := Of(netip.MustParsePrefix(p))
		if r.Overlaps(o) != want || o.Overlaps(r) != want {
			t.Errorf("%s and %s: want %v", r, p, want)
		}
	}
}
