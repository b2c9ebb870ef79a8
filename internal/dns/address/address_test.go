package address

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/test/harness"
)

func crash() error { return errors.New("crash") }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var both = []netip.Addr{netip.MustParseAddr("10.43.0.10"), netip.MustParseAddr("fd00:43::a")}

func keeper(t *testing.T, dir, link string, addresses ...netip.Addr) *Keeper {
	t.Helper()
	k, err := New(Config{Dir: dir, Link: link, Addresses: addresses})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

// has are the addresses of the interface, and its name; no name: there is no such interface. It is the loopback interface where the kernel has none of kind
// dummy, and has addresses of its own then.
func has(t *testing.T, k *Keeper) (link string, all []string) {
	t.Helper()
	l, err := netlink.LinkByName(k.Link())
	if isNoLink(err) {
		return "", nil
	}
	if err != nil {
		t.Fatal(err)
	}
	addrs, err := netlink.AddrList(l, unix.AF_UNSPEC)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if !a.IP.IsLoopback() {
			all = append(all, a.IPNet.String())
		}
	}
	slices.Sort(all)
	return l.Attrs().Name, all
}

func wants(t *testing.T, what string, k *Keeper, want ...string) {
	t.Helper()
	if link, got := has(t, k); !slices.Equal(got, want) {
		t.Errorf("%s: %s has %v, want %v", what, link, got, want)
	}
}

// TestScope: the kernel takes no address of the DNS for a source, also where an earlier version has made it.
func TestScope(t *testing.T) {
	harness.NewNetwork(t)
	k := keeper(t, filepath.Join(t.TempDir(), "dns"), "t0-dns", both...)
	if err := k.Ensure(); err != nil {
		t.Fatal(err)
	}
	scopes := func() (all []int) {
		t.Helper()
		l, err := netlink.LinkByName(k.Link())
		if err != nil {
			t.Fatal(err)
		}
		addrs, err := netlink.AddrList(l, unix.AF_INET)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range addrs {
			if a.IP.String() == both[0].String() {
				all = append(all, a.Scope)
			}
		}
		return all
	}
	if got := scopes(); !slices.Equal(got, []int{unix.RT_SCOPE_HOST}) {
		t.Errorf("it has the scope %v", got)
	}
	l, err := netlink.LinkByName(k.Link())
	if err != nil {
		t.Fatal(err)
	}
	global := addressOf(both[0])
	global.Scope = unix.RT_SCOPE_UNIVERSE
	if err := errors.Join(k.delete(l, both[0]), netlink.AddrAdd(l, global), k.Ensure()); err != nil {
		t.Fatal(err)
	}
	if got := scopes(); !slices.Equal(got, []int{unix.RT_SCOPE_HOST}) {
		t.Errorf("of an earlier version it has the scope %v", got)
	}
}

func TestEnsureAndRemove(t *testing.T) {
	harness.NewNetwork(t)
	dir := filepath.Join(t.TempDir(), "dns")
	k := keeper(t, dir, "t0-dns", both...)
	for range 2 {
		if err := k.Ensure(); err != nil {
			t.Fatal(err)
		}
		wants(t, "made", k, "10.43.0.10/32", "fd00:43::a/128")
	}
	// The range of services was changed, and a start later the name of the bridge.
	other := netip.MustParseAddr("10.44.0.10")
	k = keeper(t, dir, "t0-dns", other)
	if err := k.Ensure(); err != nil {
		t.Fatal(err)
	}
	wants(t, "other addresses", k, "10.44.0.10/32")
	k = keeper(t, dir, "t1-dns", other)
	if err := k.Ensure(); err != nil {
		t.Fatal(err)
	}
	wants(t, "another name", k, "10.44.0.10/32")
	if _, err := netlink.LinkByName("t0-dns"); !isNoLink(err) {
		t.Errorf("the interface of the old name: %v", err)
	}
	// Who removes need not know which they were.
	k = keeper(t, dir, "whatever")
	for range 2 {
		if err := k.Remove(); err != nil {
			t.Fatal(err)
		}
		wants(t, "removed", k)
	}
	if _, err := netlink.LinkByName("t1-dns"); !isNoLink(err) {
		t.Errorf("the interface: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("%v is left, %v", entries, err)
	}
}

func TestAnInterfaceOfOthersIsLeftAlone(t *testing.T) {
	harness.NewNetwork(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "t0-dns"
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		t.Fatal(err)
	}
	k := keeper(t, t.TempDir(), "t0-dns", both...)
	if err := k.Ensure(); err == nil {
		t.Error("it was taken")
	}
	if err := k.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := netlink.LinkByName("t0-dns"); err != nil {
		t.Errorf("it is gone: %v", err)
	}
}

// A crash in any line is mended by the next start, and by a removal without one.
func TestCrashes(t *testing.T) {
	for _, point := range []string{"dns/address/noted", "dns/address/made"} {
		for _, then := range []string{"start", "remove"} {
			t.Run(point+" "+then, func(t *testing.T) {
				harness.NewNetwork(t)
				k := keeper(t, t.TempDir(), "t0-dns", both...)
				disarm := failpoint.Arm(point, crash)
				err := k.Ensure()
				disarm()
				if err == nil {
					t.Fatal("it did not fail")
				}
				if then == "start" {
					if err := k.Ensure(); err != nil {
						t.Fatal(err)
					}
					wants(t, "after the crash", k, "10.43.0.10/32", "fd00:43::a/128")
				}
				if err := k.Remove(); err != nil {
					t.Fatal(err)
				}
				wants(t, "removed", k)
			})
		}
	}
}

func TestRepair(t *testing.T) {
	harness.NewNetwork(t)
	k := keeper(t, t.TempDir(), "t0-dns", both...)
	if err := k.Ensure(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	repaired, ended := make(chan struct{}, 8), make(chan error, 1)
	go func() { ended <- k.Run(ctx, func() { repaired <- struct{}{} }) }()
	takings := map[string]func(netlink.Link) error{
		"an address":         func(l netlink.Link) error { return netlink.AddrDel(l, addressOf(both[0])) },
		"the other one":      func(l netlink.Link) error { return netlink.AddrDel(l, addressOf(both[1])) },
		"up (which it sets)": netlink.LinkSetDown,
	}
	if k.Link() != loopback {
		takings["the interface"] = netlink.LinkDel
	}
	for what, take := range takings {
		l, err := netlink.LinkByName(k.Link())
		if err != nil {
			t.Fatal(err)
		}
		if err := take(l); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		select {
		case <-repaired:
		case <-time.After(time.Minute):
			t.Fatalf("%s was taken away, and is not put back", what)
		}
		wants(t, what, k, "10.43.0.10/32", "fd00:43::a/128")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
