package network

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func TestNextAddress(t *testing.T) {
	addr := netip.MustParseAddr
	for _, c := range []struct {
		prefix, last, want string
		used               []string
	}{
		{prefix: "10.0.0.0/24", want: "10.0.0.2"},
		{prefix: "10.0.0.0/24", last: "10.0.0.2", want: "10.0.0.3"},
		{prefix: "10.0.0.0/24", last: "10.0.0.254", want: "10.0.0.2"},
		{prefix: "10.0.0.0/24", last: "10.0.0.254", used: []string{"10.0.0.2", "10.0.0.3"}, want: "10.0.0.4"},
		{prefix: "10.0.0.0/24", last: "192.168.0.1", want: "10.0.0.2"}, // another range was configured before
		{prefix: "10.0.0.0/30", want: "10.0.0.2"},
		{prefix: "10.0.0.0/30", last: "10.0.0.2", used: []string{"10.0.0.2"}},
		{prefix: "10.0.255.0/23", last: "10.0.254.255", want: "10.0.255.0"},
	} {
		used := map[netip.Addr]bool{}
		for _, u := range c.used {
			used[addr(u)] = true
		}
		var last netip.Addr
		if c.last != "" {
			last = addr(c.last)
		}
		got, ok := next(netip.MustParsePrefix(c.prefix), last, func(a netip.Addr) bool { return used[a] })
		if ok != (c.want != "") || ok && got != addr(c.want) {
			t.Errorf("%+v: %v %v", c, got, ok)
		}
	}
}

func TestUsableAddresses(t *testing.T) {
	for prefix, want := range map[string][2]string{
		"10.61.0.0/16": {"10.61.0.2", "10.61.255.254"},
		"10.0.0.4/30":  {"10.0.0.6", "10.0.0.6"},
		"10.0.0.0/8":   {"10.0.0.2", "10.255.255.254"},
	} {
		p := netip.MustParsePrefix(prefix)
		first, last := usable(p)
		if first.String() != want[0] || last.String() != want[1] {
			t.Errorf("%s: %s to %s", prefix, first, last)
		}
	}
	if n := size(netip.MustParsePrefix("10.0.0.0/24")); n != 253 {
		t.Errorf("size %d", n)
	}
}

func TestOverlap(t *testing.T) {
	prefix := netip.MustParsePrefix("10.61.0.0/16")
	for other, bad := range map[string]bool{
		"10.61.3.4/32": true, "10.0.0.0/8": true, "10.61.0.0/16": true,
		"10.62.0.0/16": false, "0.0.0.0/0": false, "0.0.0.0/1": false, "192.168.0.0/16": false,
	} {
		err := overlap(prefix, []use{{}, {netip.MustParsePrefix(other), "route " + other + " on x"}})
		if (err != nil) != bad || bad && !strings.Contains(err.Error(), "route "+other+" on x") {
			t.Errorf("%s: %v", other, err)
		}
	}
}

func TestHostInterfaceNames(t *testing.T) {
	a, b := hostInterface("monopod0", "x"), hostInterface("monopod1", "x")
	if a == b || len(a) > maxInterfaceName || a != hostInterface("monopod0", "x") {
		t.Errorf("%s %s", a, b)
	}
}

// Every field of what is stored comes back, under the name that files of earlier versions have.
func TestStoredRecords(t *testing.T) {
	for want, rec := range map[string]any{
		`{"address":"10.0.0.2/24","gateway":"10.0.0.1","interface":"mp0"}`: &lease{
			Address: netip.MustParsePrefix("10.0.0.2/24"), Gateway: netip.MustParseAddr("10.0.0.1"), Interface: "mp0"},
		`{"last":"10.0.0.2"}`:              &cursor{Last: netip.MustParseAddr("10.0.0.2")},
		`{"bridge":true,"ipForward":true}`: &hostNote{Bridge: true, IPForward: true},
	} {
		v := reflect.ValueOf(rec).Elem()
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("%s.%s is not tested", v.Type(), v.Type().Field(i).Name)
			}
		}
		raw, err := json.Marshal(rec)
		if err != nil || string(raw) != want {
			t.Errorf("%s is stored as %s, %v", v.Type(), raw, err)
		}
		back := reflect.New(v.Type())
		if err := json.Unmarshal(raw, back.Interface()); err != nil || !reflect.DeepEqual(back.Interface(), rec) {
			t.Errorf("%s comes back as %+v, %v", v.Type(), back, err)
		}
	}
}
