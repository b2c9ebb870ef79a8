package lease

import (
	"encoding/json"
	"log/slog"
	"math"
	"net/netip"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/state"
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
	got, err := CheckRanges(ranges("fd00:1::5/64", "10.1.2.3/24"))
	if want := ranges("10.1.2.0/24", "fd00:1::/64"); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	a, b := UniqueLocal("machine", "monopod0"), UniqueLocal("machine", "monopod1")
	if a == b || a != UniqueLocal("machine", "monopod0") || a.Bits() != 64 || !netip.MustParsePrefix("fd00::/8").Contains(a.Addr()) || a != a.Masked() {
		t.Errorf("%s, %s", a, b)
	}
}

func TestHostPortsHaveOneForm(t *testing.T) {
	addr := netip.MustParseAddr
	for _, c := range []struct {
		in, want []network.HostPort
		is       func(error) bool
	}{
		{in: []network.HostPort{{Protocol: "TCP", HostIP: addr("0.0.0.0"), HostPort: 80, ContainerPort: 8080}}, want: []network.HostPort{{Protocol: "TCP", HostPort: 80, ContainerPort: 8080}}},
		{in: []network.HostPort{{Protocol: "UDP", HostIP: addr("::"), HostPort: 80, ContainerPort: 8080}}, want: []network.HostPort{{Protocol: "UDP", HostPort: 80, ContainerPort: 8080}}},
		{in: []network.HostPort{{Protocol: "SCTP", HostIP: addr("::ffff:1.2.3.4"), HostPort: 80, ContainerPort: 8080}}, want: []network.HostPort{{Protocol: "SCTP", HostIP: addr("1.2.3.4"), HostPort: 80, ContainerPort: 8080}}},
		{in: []network.HostPort{{Protocol: "TCP", HostIP: addr("1.2.3.4"), HostPort: 80, ContainerPort: 1}, {Protocol: "TCP", HostIP: addr("1.2.3.4"), HostPort: 80, ContainerPort: 1}}, want: []network.HostPort{{Protocol: "TCP", HostIP: addr("1.2.3.4"), HostPort: 80, ContainerPort: 1}}},
		{in: []network.HostPort{{Protocol: "TCP", HostIP: addr("1.2.3.4"), HostPort: 80, ContainerPort: 1}, {Protocol: "TCP", HostIP: addr("1.2.3.5"), HostPort: 80, ContainerPort: 1}, {Protocol: "UDP", HostIP: addr("1.2.3.4"), HostPort: 80, ContainerPort: 1}},
			want: []network.HostPort{{Protocol: "TCP", HostIP: addr("1.2.3.4"), HostPort: 80, ContainerPort: 1}, {Protocol: "TCP", HostIP: addr("1.2.3.5"), HostPort: 80, ContainerPort: 1}, {Protocol: "UDP", HostIP: addr("1.2.3.4"), HostPort: 80, ContainerPort: 1}}},
		{in: []network.HostPort{{Protocol: "TCP", HostIP: addr("1.2.3.4"), HostPort: 80, ContainerPort: 1}, {Protocol: "TCP", HostIP: addr("1.2.3.4"), HostPort: 80, ContainerPort: 2}}, is: errdefs.IsAlreadyExists},
		{in: []network.HostPort{{Protocol: "TCP", HostIP: addr("1.2.3.4"), HostPort: 80, ContainerPort: 1}, {Protocol: "TCP", HostPort: 80, ContainerPort: 2}}, is: errdefs.IsAlreadyExists},
		{in: []network.HostPort{{Protocol: "TCP", HostPort: 0, ContainerPort: 2}}, is: errdefs.IsInvalidArgument},
		{in: []network.HostPort{{Protocol: "TCP", HostPort: 2, ContainerPort: 0}}, is: errdefs.IsInvalidArgument},
		{in: []network.HostPort{{Protocol: "tcp", HostPort: 2, ContainerPort: 2}}, is: errdefs.IsInvalidArgument},
		{in: []network.HostPort{{Protocol: "TCP", HostIP: addr("fe80::1%eth0"), HostPort: 2, ContainerPort: 2}}, is: errdefs.IsInvalidArgument},
		{in: []network.HostPort{{Protocol: "TCP", HostIP: addr("::1"), HostPort: 2, ContainerPort: 2}}, is: errdefs.IsNotImplemented},
		{in: []network.HostPort{{Protocol: "TCP", HostIP: addr("::ffff:127.0.0.1"), HostPort: 2, ContainerPort: 2}}, want: []network.HostPort{{Protocol: "TCP", HostIP: addr("127.0.0.1"), HostPort: 2, ContainerPort: 2}}},
	} {
		got, err := CanonicalPorts(c.in)
		if c.is != nil && !c.is(err) || c.is == nil && (err != nil || !slices.Equal(got, c.want)) {
			t.Errorf("%v: %v, %v", c.in, got, err)
		}
	}
}

func TestHostInterfaceNames(t *testing.T) {
	a, b := HostInterface("monopod0", "x"), HostInterface("monopod1", "x")
	if a == b || len(a) > 15 || a != HostInterface("monopod0", "x") {
		t.Errorf("%s %s", a, b)
	}
}

// Every field of what is stored comes back.
func TestStoredRecords(t *testing.T) {
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	for want, rec := range map[string]any{
		`{"addresses":[{"address":"10.0.0.2/24","gateway":"10.0.0.1"},{"address":"fd00::2/64","gateway":"fd00::1"}],"interface":"mp0",` +
			`"hostPorts":[{"protocol":"TCP","hostIP":"1.2.3.4","hostPort":80,"containerPort":8080},{"protocol":"UDP","hostPort":1,"containerPort":2}],"pod":"a/b","podInfo":{"namespace":"a","name":"b","uid":"c"},"leaving":true}`: &Lease{
			Addresses: []Address{{prefix("10.0.0.2/24"), addr("10.0.0.1")}, {prefix("fd00::2/64"), addr("fd00::1")}}, Interface: "mp0",
			HostPorts: []network.HostPort{{Protocol: "TCP", HostIP: addr("1.2.3.4"), HostPort: 80, ContainerPort: 8080}, {Protocol: "UDP", HostPort: 1, ContainerPort: 2}}, Pod: "a/b", PodInfo: network.PodInfo{Namespace: "a", Name: "b", UID: "c"}, Leaving: true},
		`{"last":"10.0.0.2"}`: &cursor{Last: addr("10.0.0.2")},
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
	var rec Lease
	if err := json.Unmarshal([]byte(`{"address":"10.0.0.2/24","gateway":"10.0.0.1","interface":"mp0"}`), &rec); err != nil {
		t.Fatal(err)
	}
	want := Lease{Addresses: []Address{{netip.MustParsePrefix("10.0.0.2/24"), netip.MustParseAddr("10.0.0.1")}}, Interface: "mp0"}
	if !reflect.DeepEqual(rec, want) {
		t.Errorf("%+v", rec)
	}
	for _, raw := range []string{`{}`, `{"interface":"mp0"}`, `{"addresses":[{"address":"10.0.0.2/24","gateway":"10.0.0.1"}]}`} {
		if err := json.Unmarshal([]byte(raw), &rec); err == nil {
			t.Errorf("%s is taken for a lease", raw)
		}
	}
}

func ranges(all ...string) (out []netip.Prefix) {
	for _, s := range all {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// While the disk is written for one sandbox, whoever asks of another one does not wait.
func TestNobodyWaitsForTheDisk(t *testing.T) {
	db, _, err := state.Open(state.Config{Path: filepath.Join(t.TempDir(), "state.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	l := Open(t.Context(), db, "b", []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}, slog.New(slog.DiscardHandler))
	address := netip.MustParsePrefix("10.0.0.9/24")
	rec := Lease{Interface: "mp1", Addresses: []Address{{Address: address, Gateway: GatewayOf(address)}}}
	hangs, ends := make(chan struct{}), make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		if err := db.Update(func(*state.Tx) error { close(hangs); <-ends; return nil }); err != nil {
			t.Error(err)
		}
	})
	<-hangs
	others.Go(func() {
		if err := l.Adopt("a", rec); err != nil {
			t.Error(err)
		}
	})
	taken := make(chan struct{})
	go func() {
		defer close(taken)
		for whose := ids.SandboxID(""); whose != "a"; runtime.Gosched() {
			l.mu.Lock()
			whose = l.byAddr[address.Addr()]
			l.mu.Unlock()
		}
		if err := l.Adopt("other", rec); !errdefs.IsConflict(err) { // before the disk has it
			t.Errorf("another one takes the address: %v", err)
		}
		if n := l.InUse(); n != 0 {
			t.Errorf("%d have a record", n)
		}
	}()
	select {
	case <-taken:
	case <-time.After(time.Minute):
		t.Error("somebody waits for another's disk")
	}
	close(ends)
	others.Wait()
	if _, ok := l.Get("a"); !ok {
		t.Error("a has no record")
	}
}
