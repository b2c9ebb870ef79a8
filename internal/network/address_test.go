package network

import (
	"encoding/json"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
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
		{prefix: "255.255.255.0/24", last: "255.255.255.254", want: "255.255.255.2"},
		{prefix: "fd00::/64", want: "fd00::2"},
		{prefix: "fd00::/64", last: "fd00::2", used: []string{"fd00::3"}, want: "fd00::4"},
		{prefix: "fd00::/64", last: "10.0.0.2", want: "fd00::2"},
		{prefix: "fd00::/126", last: "fd00::3", want: "fd00::2"},
		{prefix: "fd00::/126", last: "fd00::2", used: []string{"fd00::2", "fd00::3"}},
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
		"fd00::/124":   {"fd00::2", "fd00::f"},
		"fd00:1::/63":  {"fd00:1::2", "fd00:1:0:1:ffff:ffff:ffff:ffff"},
	} {
		p := netip.MustParsePrefix(prefix)
		first, last := usable(p)
		if first.String() != want[0] || last.String() != want[1] {
			t.Errorf("%s: %s to %s", prefix, first, last)
		}
	}
	for prefix, want := range map[string]uint64{"10.0.0.0/24": 253, "10.0.0.0/30": 1, "fd00::/126": 2, "fd00::/64": math.MaxUint64} {
		if n := size(netip.MustParsePrefix(prefix)); n != want {
			t.Errorf("size of %s: %d", prefix, n)
		}
	}
}

func TestRangesHaveOneForm(t *testing.T) {
	got, err := checkRanges(ranges("fd00:1::5/64", "10.1.2.3/24"))
	if want := ranges("10.1.2.0/24", "fd00:1::/64"); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	a, b := uniqueLocal("machine", "monopod0"), uniqueLocal("machine", "monopod1")
	if a == b || a != uniqueLocal("machine", "monopod0") || a.Bits() != 64 || !netip.MustParsePrefix("fd00::/8").Contains(a.Addr()) || a != a.Masked() {
		t.Errorf("%s, %s", a, b)
	}
}

func TestHostPortsHaveOneForm(t *testing.T) {
	addr := netip.MustParseAddr
	for _, c := range []struct {
		in, want []HostPort
		is       func(error) bool
	}{
		{in: []HostPort{{"TCP", addr("0.0.0.0"), 80, 8080}}, want: []HostPort{{"TCP", netip.Addr{}, 80, 8080}}},
		{in: []HostPort{{"UDP", addr("::"), 80, 8080}}, want: []HostPort{{"UDP", netip.Addr{}, 80, 8080}}},
		{in: []HostPort{{"SCTP", addr("::ffff:1.2.3.4"), 80, 8080}}, want: []HostPort{{"SCTP", addr("1.2.3.4"), 80, 8080}}},
		{in: []HostPort{{"TCP", addr("1.2.3.4"), 80, 1}, {"TCP", addr("1.2.3.4"), 80, 1}}, want: []HostPort{{"TCP", addr("1.2.3.4"), 80, 1}}},
		{in: []HostPort{{"TCP", addr("1.2.3.4"), 80, 1}, {"TCP", addr("1.2.3.5"), 80, 1}, {"UDP", addr("1.2.3.4"), 80, 1}},
			want: []HostPort{{"TCP", addr("1.2.3.4"), 80, 1}, {"TCP", addr("1.2.3.5"), 80, 1}, {"UDP", addr("1.2.3.4"), 80, 1}}},
		{in: []HostPort{{"TCP", addr("1.2.3.4"), 80, 1}, {"TCP", addr("1.2.3.4"), 80, 2}}, is: errdefs.IsAlreadyExists},
		{in: []HostPort{{"TCP", addr("1.2.3.4"), 80, 1}, {"TCP", netip.Addr{}, 80, 2}}, is: errdefs.IsAlreadyExists},
		{in: []HostPort{{"TCP", netip.Addr{}, 0, 2}}, is: errdefs.IsInvalidArgument},
		{in: []HostPort{{"TCP", netip.Addr{}, 2, 0}}, is: errdefs.IsInvalidArgument},
		{in: []HostPort{{"tcp", netip.Addr{}, 2, 2}}, is: errdefs.IsInvalidArgument},
		{in: []HostPort{{"TCP", addr("fe80::1%eth0"), 2, 2}}, is: errdefs.IsInvalidArgument},
		{in: []HostPort{{"TCP", addr("::1"), 2, 2}}, is: errdefs.IsNotImplemented},
		{in: []HostPort{{"TCP", addr("::ffff:127.0.0.1"), 2, 2}}, want: []HostPort{{"TCP", addr("127.0.0.1"), 2, 2}}},
	} {
		got, err := canonicalPorts(c.in)
		if c.is != nil && !c.is(err) || c.is == nil && (err != nil || !slices.Equal(got, c.want)) {
			t.Errorf("%v: %v, %v", c.in, got, err)
		}
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

// Every field of what is stored comes back.
func TestStoredRecords(t *testing.T) {
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	for want, rec := range map[string]any{
		`{"addresses":[{"address":"10.0.0.2/24","gateway":"10.0.0.1"},{"address":"fd00::2/64","gateway":"fd00::1"}],"interface":"mp0",` +
			`"hostPorts":[{"protocol":"TCP","hostIP":"1.2.3.4","hostPort":80,"containerPort":8080},{"protocol":"UDP","hostPort":1,"containerPort":2}],"pod":"a/b","podInfo":{"namespace":"a","name":"b","uid":"c"},"leaving":true}`: &lease{
			Addresses: []address{{prefix("10.0.0.2/24"), addr("10.0.0.1")}, {prefix("fd00::2/64"), addr("fd00::1")}}, Interface: "mp0",
			HostPorts: []HostPort{{"TCP", addr("1.2.3.4"), 80, 8080}, {"UDP", netip.Addr{}, 1, 2}}, Pod: "a/b", PodInfo: PodInfo{"a", "b", "c"}, Leaving: true},
		`{"last":"10.0.0.2"}`: &cursor{Last: addr("10.0.0.2")},
		`{"bridge":true,"ipForward":true,"ip6Forward":true,"boot":"b","acceptRA":["eth0"],"updated":["10.0.0.0/24"],"configured":["10.0.1.0/24"]}`: &hostNote{
			Bridge: true, IPForward: true, IP6Forward: true, Boot: "b", AcceptRA: []string{"eth0"}, Updated: ranges("10.0.0.0/24"), Configured: ranges("10.0.1.0/24")},
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

// What earlier versions have stored stays readable.
func TestOldRecords(t *testing.T) {
	var rec lease
	if err := json.Unmarshal([]byte(`{"address":"10.0.0.2/24","gateway":"10.0.0.1","interface":"mp0"}`), &rec); err != nil {
		t.Fatal(err)
	}
	want := lease{Addresses: []address{{netip.MustParsePrefix("10.0.0.2/24"), netip.MustParseAddr("10.0.0.1")}}, Interface: "mp0"}
	if !reflect.DeepEqual(rec, want) {
		t.Errorf("%+v", rec)
	}
	for _, raw := range []string{`{}`, `{"interface":"mp0"}`, `{"addresses":[{"address":"10.0.0.2/24","gateway":"10.0.0.1"}]}`} {
		if err := json.Unmarshal([]byte(raw), &rec); err == nil {
			t.Errorf("%s is taken for a lease", raw)
		}
	}
}
