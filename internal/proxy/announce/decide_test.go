package announce

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	now     = time.Unix(1000, 0)
	v4, v6  = netip.MustParseAddr("192.0.2.64"), netip.MustParseAddr("2001:db8::64")
	outside = link{index: 2, name: "eth0", running: true, networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64")}}
)

func down(l link) link {
	l.running = false
	return l
}

func numbered(l link, index int) link {
	l.index = index
	return l
}

func set(all ...netip.Addr) map[netip.Addr]bool { return setOf(all) }

// told is what is decided, in words.
func told(d actions) (lines []string) {
	for _, l := range []struct {
		what string
		of   []at
	}{{"take", d.take}, {"add", d.add}, {"probe", d.probe}, {"held", d.held}, {"taken", d.taken}, {"own", d.own}, {"unusable", d.unusable}} {
		for _, a := range l.of {
			lines = append(lines, fmt.Sprintf("%s %s at %d", l.what, a.Addr, a.link))
		}
	}
	for _, a := range d.noted {
		lines = append(lines, "note "+a.String())
	}
	if !d.again.IsZero() {
		lines = append(lines, fmt.Sprint("again in ", d.again.Sub(now)))
	}
	slices.Sort(lines)
	return lines
}

func TestDecide(t *testing.T) {
	here, trying := place{link: 2, alone: true}, place{link: 2, alone: true, tentative: true}
	free := map[netip.Addr]attempt{v4: {link: 2, free: true}}
	for name, c := range map[string]struct {
		facts facts
		want  string
	}{
		"nothing":               {facts{links: []link{outside}}, ""},
		"IPv4 is probed first":  {facts{links: []link{outside}, wanted: set(v4)}, "probe 192.0.2.64 at 2"},
		"while it is probed":    {facts{links: []link{outside}, wanted: set(v4), probing: set(v4)}, ""},
		"when it is free":       {facts{links: []link{outside}, wanted: set(v4), attempts: free}, "add 192.0.2.64 at 2, note 192.0.2.64"},
		"free on another link":  {facts{links: []link{numbered(outside, 3)}, wanted: set(v4), attempts: free}, "probe 192.0.2.64 at 3"},
		"IPv6 is added at once": {facts{links: []link{outside}, wanted: set(v6)}, "add 2001:db8::64 at 2, note 2001:db8::64"},
		"of no network":         {facts{links: []link{outside}, wanted: set(netip.MustParseAddr("198.51.100.1"))}, ""},
		"the network's own": {
			facts{links: []link{outside}, wanted: set(netip.MustParseAddr("192.0.2.0"), netip.MustParseAddr("192.0.2.255"))}, "unusable 192.0.2.0 at 2, unusable 192.0.2.255 at 2",
		},
		"the first of a network of IPv6": {
			facts{links: []link{outside}, wanted: set(netip.MustParseAddr("2001:db8::"))}, "add 2001:db8:: at 2, note 2001:db8::",
		},
		"the network is not connected": {facts{links: []link{down(outside)}, wanted: set(v4, v6)}, ""},
		"of two links the one that is": {facts{links: []link{down(outside), numbered(outside, 3)}, wanted: set(v6)}, "add 2001:db8::64 at 3, note 2001:db8::64"},
		"in use: later": {
			facts{links: []link{outside}, wanted: set(v4, v6), attempts: map[netip.Addr]attempt{v4: {until: now.Add(2 * time.Second)}, v6: {until: now.Add(time.Second)}}}, "again in 1s",
		},
		"in use: again":         {facts{links: []link{outside}, wanted: set(v4), attempts: map[netip.Addr]attempt{v4: {until: now}}}, "probe 192.0.2.64 at 2"},
		"the host's own":        {facts{links: []link{outside}, wanted: set(v4), has: map[netip.Addr]place{v4: {link: 2}}}, "own 192.0.2.64 at 2"},
		"the host's own, alone": {facts{links: []link{outside}, wanted: set(v4), has: map[netip.Addr]place{v4: here}}, "own 192.0.2.64 at 2"},
		"it is here": {
			facts{links: []link{outside}, wanted: set(v4), noted: set(v4), has: map[netip.Addr]place{v4: here}}, "held 192.0.2.64 at 2, note 192.0.2.64",
		},
		"the kernel looks yet": {
			facts{links: []link{outside}, wanted: set(v6), noted: set(v6), has: map[netip.Addr]place{v6: trying}}, "note 2001:db8::64",
		},
		"the kernel has found another machine": {
			facts{links: []link{outside}, wanted: set(v6), noted: set(v6), has: map[netip.Addr]place{v6: {link: 2, alone: true, tentative: true, taken: true}}},
			"take 2001:db8::64 at 2, taken 2001:db8::64 at 2",
		},
		"not wanted any more":                {facts{links: []link{outside}, noted: set(v4), has: map[netip.Addr]place{v4: here}}, "take 192.0.2.64 at 2"},
		"not wanted, and not there":          {facts{links: []link{outside}, noted: set(v4)}, ""},
		"not wanted, and somebody's now":     {facts{links: []link{outside}, noted: set(v4), has: map[netip.Addr]place{v4: {link: 2}}}, ""},
		"wanted, and somebody's now":         {facts{links: []link{outside}, wanted: set(v4), noted: set(v4), has: map[netip.Addr]place{v4: {link: 2}}}, "own 192.0.2.64 at 2"},
		"taken away by somebody":             {facts{links: []link{outside}, wanted: set(v4), noted: set(v4)}, "probe 192.0.2.64 at 2"},
		"taken away, IPv6":                   {facts{links: []link{outside}, wanted: set(v6), noted: set(v6)}, "add 2001:db8::64 at 2, note 2001:db8::64"},
		"the network has gone from the link": {facts{wanted: set(v4), noted: set(v4), has: map[netip.Addr]place{v4: here}}, "take 192.0.2.64 at 2"},
		"the network is another link's now": {
			facts{links: []link{numbered(outside, 3)}, wanted: set(v6), noted: set(v6), has: map[netip.Addr]place{v6: here}}, "add 2001:db8::64 at 3, note 2001:db8::64, take 2001:db8::64 at 2",
		},
		"the link is not connected for now": {
			facts{links: []link{down(outside), numbered(outside, 3)}, wanted: set(v4), noted: set(v4), has: map[netip.Addr]place{v4: here}}, "note 192.0.2.64",
		},
	} {
		c.facts.now = now
		if got := strings.Join(told(decide(c.facts)), ", "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestRetry(t *testing.T) {
	for tries, want := range map[int]time.Duration{0: time.Second, 1: 2 * time.Second, 4: 16 * time.Second, 5: 30 * time.Second, 1 << 30: 30 * time.Second} {
		if got := retry(tries); got != want {
			t.Errorf("after %d tries %v, want %v", tries, got, want)
		}
	}
}
