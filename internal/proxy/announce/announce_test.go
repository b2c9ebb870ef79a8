package announce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/test/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// network is a network namespace that plays the host, with another machine on its network.
type network struct {
	*testing.T
	up    netlink.Link // the host's
	other string       // the machine's network namespace
	dir   string
}

var (
	host4, host6   = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	other4, other6 = netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::2")
)

func newNetwork(t *testing.T) *network {
	t.Helper()
	harness.NewNetwork(t)
	n := &network{T: t, other: filepath.Join(t.TempDir(), "other"), dir: filepath.Join(t.TempDir(), "services")}
	harness.PinNetNS(t, n.other)
	ns, err := os.Open(n.other)
	n.must(err)
	defer ns.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "up0"
	n.up = &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(ns.Fd()))}
	n.must(netlink.LinkAdd(n.up))
	t.Cleanup(func() { n.must(netlink.LinkDel(n.up)) })
	n.must(give("up0", "192.0.2.1/24", "2001:db8::1/64"))
	n.elsewhere(func() error { return give("eth0", "192.0.2.2/24", "2001:db8::2/64") })
	for _, to := range []netip.Addr{other4, other6} { // the way to everywhere else
		n.must(netlink.RouteAdd(&netlink.Route{LinkIndex: n.up.Attrs().Index, Gw: to.AsSlice()}))
	}
	return n
}

func (n *network) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

// elsewhere does something on the other machine.
func (n *network) elsewhere(f func() error) {
	n.Helper()
	n.must(harness.InNetNS(n.other, f))
}

// give gives addresses to an interface, which is up then.
func give(name string, addresses ...string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, text := range addresses {
		a, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		a.Flags = unix.IFA_F_NODAD
		if a.IP.To4() != nil {
			a.Flags = 0
		}
		if err := netlink.AddrAdd(l, a); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(l)
}

func take(name, address string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(address)
	if err != nil {
		return err
	}
	return netlink.AddrDel(l, a)
}

// has are the addresses of the host that are of no network: those that are announced.
func (n *network) has() (all []string) {
	n.Helper()
	addrs, err := netlink.AddrList(n.up, unix.AF_UNSPEC)
	for errors.Is(err, netlink.ErrDumpInterrupted) { // they change meanwhile
		addrs, err = netlink.AddrList(n.up, unix.AF_UNSPEC)
	}
	n.must(err)
	for i := range addrs {
		if p, ok := prefixOf(&addrs[i]); ok && p.IsSingleIP() {
			all = append(all, p.Addr().String())
		}
	}
	slices.Sort(all)
	return all
}

// asks asks from the other machine for a port that nobody listens at: the host says so, or nobody has the address.
func (n *network) asks(a netip.Addr) (answer string) {
	n.elsewhere(func() error {
		c, err := net.Dial("tcp", netip.AddrPortFrom(a, 9).String())
		if err == nil {
			c.Close()
		}
		answer = fmt.Sprint(err)
		return nil
	})
	return answer
}

func (n *network) reached(a netip.Addr) {
	n.Helper()
	harness.Eventually(n.T, a.String()+" is reached from the other machine", func() (bool, string) {
		got := n.asks(a)
		return strings.Contains(got, "refused"), got
	})
}

// running is an announcer with what it has told.
type running struct {
	*Announcer
	n *network

	mu      sync.Mutex
	told    []Outcome
	guarded []netip.Addr

	cancel context.CancelFunc
	ended  chan struct{}
}

func (n *network) start(wanted ...netip.Addr) *running {
	n.Helper()
	r := n.open(wanted...)
	r.run()
	return r
}

// open opens an announcer that does nothing yet.
func (n *network) open(wanted ...netip.Addr) *running {
	n.Helper()
	r := &running{n: n, ended: make(chan struct{})}
	var err error
	r.Announcer, err = Open(Config{
		Dir: n.dir, Log: slog.New(slog.NewTextHandler(n.Output(), nil)),
		Tell: func(o Outcome) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.told = append(r.told, o)
		},
		Guard: func(all []netip.Addr) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.guarded = slices.Clone(all)
			return nil
		},
	})
	n.must(err)
	r.guarded = r.Noted()
	r.Want(wanted)
	return r
}

func (r *running) run() {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() {
		defer close(r.ended)
		r.Run(ctx)
	}()
	r.n.Cleanup(r.stop)
}

// stop ends it, as a kill would: nothing is taken back.
func (r *running) stop() {
	if r.cancel != nil {
		r.cancel()
		<-r.ended
		r.Close()
		r.cancel = nil
	}
}

// tells waits until it has told something of an address, and returns who has it instead.
func (r *running) tells(a netip.Addr) (by string) {
	r.n.Helper()
	harness.Eventually(r.n.T, "it is told what becomes of "+a.String(), func() (bool, string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for i, o := range r.told {
			if o.Address == a {
				if o.Link != "up0" {
					r.n.Errorf("%s is on %s", a, o.Link)
				}
				by = o.By
				r.told = slices.Delete(r.told, i, i+1)
				return true, ""
			}
		}
		return false, fmt.Sprint(r.told)
	})
	return by
}

// settled waits until the host has these addresses and no others, and the guard knows as many.
func (r *running) settled(addresses ...netip.Addr) {
	r.n.Helper()
	var want []string
	for _, a := range addresses {
		want = append(want, a.String())
	}
	slices.Sort(want)
	harness.Eventually(r.n.T, fmt.Sprint("the host has ", want), func() (bool, string) {
		has := r.n.has()
		noted, err := readNote(r.n.dir)
		r.n.must(err)
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.Equal(has, want) && len(r.guarded) == len(want) && len(noted) == len(want), fmt.Sprint("it has ", has, ", guarded ", r.guarded, ", noted ", noted)
	})
}

// source is the address from which the host sends to another one.
func (n *network) source(to string) string {
	n.Helper()
	c, err := net.Dial("udp", net.JoinHostPort(to, "9"))
	n.must(err)
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).IP.String()
}

func TestAddressesAreAnnounced(t *testing.T) {
	n := newNetwork(t)
	r := n.start(v4, v6, netip.MustParseAddr("198.51.100.1")) // that one is left to a router
	for _, a := range []netip.Addr{v4, v6} {
		if by := r.tells(a); by != "" {
			t.Errorf("%s is %s", a, by)
		}
		n.reached(a)
	}
	r.settled(v4, v6)
	sources := func() {
		t.Helper()
		for to, want := range map[string]netip.Addr{other4.String(): host4, other6.String(): host6, "198.51.100.1": host4, "2001:db8:1::1": host6} {
			if got := n.source(to); got != want.String() {
				t.Errorf("the host sends to %s from %s, want %s", to, got, want)
			}
		}
	}
	sources()
	// The host's own address is given again, by DHCP, say: it comes behind then.
	n.must(take("up0", "192.0.2.1/24"))
	n.must(give("up0", "192.0.2.1/24"))
	n.must(netlink.RouteReplace(&netlink.Route{LinkIndex: n.up.Attrs().Index, Gw: other4.AsSlice()}))
	n.reached(v4)
	sources()
	r.stop()
	n.reached(v4) // nobody keeps it now
	n.reached(v6)
	r = n.start(v6)
	r.settled(v6)
	if got := r.Noted(); !slices.Equal(got, []netip.Addr{v6}) {
		t.Errorf("noted are %v", got)
	}
	r.mu.Lock()
	if len(r.told) > 0 {
		t.Errorf("what was announced before is told again: %v", r.told)
	}
	r.mu.Unlock()
	r.Want(nil)
	r.settled()
	r.Want([]netip.Addr{v4})
	r.settled(v4)
	r.stop()
	for range 2 {
		n.must(Remove(n.dir))
		if left := n.has(); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
	}
	if entries, err := os.ReadDir(n.dir); err != nil || len(entries) > 0 {
		t.Errorf("%v are left, %v", entries, err)
	}
}

func TestAnotherMachineHasIt(t *testing.T) {
	n := newNetwork(t)
	n.elsewhere(func() error { return give("eth0", v4.String()+"/24", v6.String()+"/64") })
	free := netip.MustParseAddr("192.0.2.65")
	r := n.start(v4, v6, free)
	var mac string
	n.elsewhere(func() error {
		l, err := netlink.LinkByName("eth0")
		if err == nil {
			mac = l.Attrs().HardwareAddr.String()
		}
		return err
	})
	for a, want := range map[netip.Addr]string{free: "", v4: "the machine with the hardware address " + mac, v6: "another machine"} {
		if by := r.tells(a); by != want {
			t.Errorf("%s: %q, want %q", a, by, want)
		}
	}
	if got := n.has(); slices.Contains(got, v4.String()) {
		t.Errorf("the host has %v", got)
	}
	// When that is over it is announced.
	n.elsewhere(func() error { return errors.Join(take("eth0", v4.String()+"/24"), take("eth0", v6.String()+"/64")) })
	for _, a := range []netip.Addr{v4, v6} {
		if by := r.tells(a); by != "" {
			t.Errorf("%s is %s", a, by)
		}
	}
	r.settled(free, v4, v6)
}

func TestTheHostsOwnIsLeftAlone(t *testing.T) {
	n := newNetwork(t)
	n.must(give("up0", v4.String()+"/32", v6.String()+"/64"))
	r := n.start(v4, v6)
	for _, a := range []netip.Addr{v4, v6} {
		if by := r.tells(a); by != "this machine" {
			t.Errorf("%s: %q", a, by)
		}
	}
	if noted := r.Noted(); len(noted) > 0 {
		t.Errorf("%v are noted", noted)
	}
	r.stop()
	n.must(Remove(n.dir))
	if got := n.has(); !slices.Contains(got, v4.String()) {
		t.Errorf("the host has %v", got)
	}
}

// What somebody takes away is put back, and neighbours hear of it.
func TestPutBack(t *testing.T) {
	n := newNetwork(t)
	r := n.start(v4, v6)
	r.settled(v4, v6)
	n.must(take("up0", v4.String()+"/32"))
	n.must(take("up0", v6.String()+"/128"))
	r.settled(v4, v6)
	n.reached(v4)
	n.reached(v6)
	// An interface that is down has no addresses of IPv6, of networks neither.
	n.must(netlink.LinkSetDown(n.up))
	r.settled(v4)
	n.must(give("up0", "2001:db8::1/64"))
	r.settled(v4, v6)
	n.reached(v6)
	// The network goes to another interface, and the addresses with it.
	n.must(take("up0", "192.0.2.1/24"))
	r.settled(v6)
	n.must(give("up0", "192.0.2.1/24"))
	r.settled(v4, v6)
}

// Neighbours that know another hardware address for it, of the node that has had it, take this one.
func TestNeighboursAreTold(t *testing.T) {
	n := newNetwork(t)
	n.elsewhere(func() error {
		l, err := netlink.LinkByName("eth0")
		for _, a := range []netip.Addr{v4, v6} {
			if err == nil {
				err = netlink.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, IP: a.AsSlice(), State: netlink.NUD_REACHABLE, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9}})
			}
		}
		return err
	})
	r := n.start(v4, v6)
	r.settled(v4, v6)
	up, err := netlink.LinkByName("up0")
	n.must(err)
	harness.Eventually(t, "the other machine knows where they are", func() (bool, string) {
		known := map[string]string{}
		n.elsewhere(func() error {
			l, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			all, err := netlink.NeighList(l.Attrs().Index, unix.AF_UNSPEC)
			for i := range all {
				known[all[i].IP.String()] = all[i].HardwareAddr.String()
			}
			return err
		})
		mac := up.Attrs().HardwareAddr.String()
		return known[v4.String()] == mac && known[v6.String()] == mac, fmt.Sprint(known)
	})
}

// A death at any step leaves nothing that the next one does not know of, and nothing unguarded.
func TestDeathAtEachStep(t *testing.T) {
	n := newNetwork(t)
	for _, step := range []string{"noted", "guarded", "added", "taken"} {
		for i, want := range [][]netip.Addr{{v4, v6}, {v4}, nil} {
			if step == "guarded" && i > 0 {
				continue // that is before an address is added
			}
			r := n.open(want...)
			died := make(chan struct{})
			die := sync.OnceFunc(func() { close(died) })
			disarm := failpoint.Arm("proxy/announce/"+step, func() error {
				if step == "added" && i == 0 && !r.hasAny() {
					return nil // nothing is yet
				}
				die()
				return errors.New("dead")
			})
			r.run()
			<-died
			r.stop()
			disarm()
			noted, err := readNote(n.dir)
			n.must(err)
			for _, has := range n.has() {
				if a := netip.MustParseAddr(has); !slices.Contains(noted, a) || !slices.Contains(r.guarded, a) {
					t.Errorf("death when %s, change %d: the host has %s, noted are %v, guarded %v", step, i, has, noted, r.guarded)
				}
			}
			r = n.start(want...)
			r.settled(want...)
			r.stop()
		}
	}
	r := n.start(v4, v6)
	r.settled(v4, v6)
	r.stop()
	disarm := failpoint.Arm("proxy/announce/removed", func() error { return errors.New("dead") })
	if err := Remove(n.dir); err == nil {
		t.Error("there is no such step")
	}
	disarm()
	n.must(Remove(n.dir))
	if left := n.has(); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

// hasAny says that the host has an address of no network.
func (r *running) hasAny() bool {
	_, all, err := r.look()
	for _, p := range all {
		if p.alone {
			return true
		}
	}
	return err != nil
}

func TestANoteThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	for _, text := range []string{"{", `{"version": 2, "addresses": []}`, `{"version": 1, "addresses": ["x"]}`} {
		if err := os.WriteFile(noteFile(dir), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(Config{Dir: dir})
		for _, err := range []error{err, Remove(dir)} {
			if err == nil || !strings.Contains(err.Error(), noteFile(dir)) || !strings.Contains(err.Error(), "remove the file") {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}

// TestCost prints what a thousand addresses take. It asserts that none is forgotten.
func TestCost(t *testing.T) {
	n := newNetwork(t)
	n.must(give("up0", "198.18.0.1/16"))
	var all []netip.Addr
	four, six := netip.MustParseAddr("198.18.1.0"), netip.MustParseAddr("2001:db8::100")
	for range 500 {
		all = append(all, four, six)
		four, six = four.Next(), six.Next()
	}
	begin := time.Now()
	r := n.start(all...)
	r.settled(all...)
	made := time.Since(begin)
	harness.Eventually(t, "all are announced", func() (bool, string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.told) == len(all), fmt.Sprint(len(r.told))
	})
	announced := time.Since(begin)
	begin = time.Now()
	r.Want(all[1:])
	r.settled(all[1:]...)
	one := time.Since(begin)
	begin = time.Now()
	r.Want(nil)
	r.settled()
	t.Logf("%d addresses: all made after %v, announced after %v; one less %v; all gone %v", len(all), made, announced, one, time.Since(begin))
}
