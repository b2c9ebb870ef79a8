package alloc_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"

	"monopod.dev/monopod/internal/apiserver/registry/service/alloc"
)

func addresses(t testing.TB, cidr string) *alloc.Pool[netip.Addr] {
	t.Helper()
	values, err := alloc.Addresses(netip.MustParsePrefix(cidr))
	if err != nil {
		t.Fatal(err)
	}
	return alloc.New(values)
}

func TestAddresses(t *testing.T) {
	for cidr, want := range map[string]string{
		"10.43.0.0/16":  "65534 256 10.43.0.1 10.43.255.254",
		"10.43.0.0/24":  "254 16 10.43.0.1 10.43.0.254",
		"10.43.0.0/28":  "14 0 10.43.0.1 10.43.0.14",
		"fd00:43::/112": "65535 256 fd00:43::1 fd00:43::ffff",
		"fd00:43::/64":  "1048575 256 fd00:43::1 fd00:43::f:ffff",
	} {
		v, err := alloc.Addresses(netip.MustParsePrefix(cidr))
		if err != nil {
			t.Errorf("%s: %v", cidr, err)
			continue
		}
		if got := fmt.Sprint(v.Size, v.Static, " ", v.At(0), " ", v.At(v.Size-1)); got != want {
			t.Errorf("%s: %s, want %s", cidr, got, want)
		}
		outside := netip.MustParsePrefix(cidr).Addr()
		if v.Has(outside) || v.Has(netip.MustParseAddr("192.0.2.1")) || !v.Has(v.At(0)) || !v.Has(v.At(v.Size-1)) {
			t.Errorf("%s has the wrong addresses", cidr)
		}
	}
	for _, cidr := range []string{"10.43.0.1/16", "10.0.0.0/8", "10.43.0.0/30", "fd00::/126"} {
		if _, err := alloc.Addresses(netip.MustParsePrefix(cidr)); err == nil {
			t.Errorf("%s is taken", cidr)
		}
	}
	if v := alloc.Ports(30000, 32767); v.Size != 2768 || v.Static != 86 || v.At(0) != 30000 || v.At(v.Size-1) != 32767 || v.Has(32768) || v.Has(29999) {
		t.Errorf("ports: %d %d", v.Size, v.Static)
	}
}

// Values that nobody names are of the upper band as long as there are any.
func TestTheStaticBandIsLast(t *testing.T) {
	p := addresses(t, "10.43.0.0/24")
	limit := netip.MustParseAddr("10.43.0.16")
	for i := range 254 {
		c, err := p.Next(fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		if upper := c.Value.Compare(limit) > 0; upper != (i < 238) {
			t.Errorf("number %d is %s", i, c.Value)
		}
	}
	if _, err := p.Next("late"); !errors.Is(err, alloc.ErrFull) {
		t.Errorf("error %v, want that it is full", err)
	}
}

func TestTake(t *testing.T) {
	p := addresses(t, "10.43.0.0/24")
	a := netip.MustParseAddr("10.43.0.7")
	c, err := p.Take("one", a)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := p.Take("one", a); again != nil || err != nil {
		t.Errorf("its own: %v, %v", again, err)
	}
	if _, err := p.Take("two", a); !errors.Is(err, alloc.ErrTaken) {
		t.Errorf("another's: %v", err)
	}
	if _, err := p.Take("two", netip.MustParseAddr("10.44.0.7")); !errors.Is(err, alloc.ErrOutside) {
		t.Errorf("outside: %v", err)
	}
	c.Commit()
	p.Release("two", a)
	if p.Held() != 1 {
		t.Error("somebody else gave it back")
	}
	p.Release("one", a)
	d, err := p.Take("two", a)
	if err != nil {
		t.Fatal(err)
	}
	c.Drop() // of a claim that is over
	if p.Held() != 1 {
		t.Error("an earlier claim dropped a later one")
	}
	d.Drop()
	if p.Held() != 0 {
		t.Error("a dropped claim holds")
	}
}

func TestSettle(t *testing.T) {
	p := addresses(t, "10.43.0.0/24")
	at := func(last byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 43, 0, last}) }
	take := func(owner string, last byte) *alloc.Claim[netip.Addr] {
		c, err := p.Take(owner, at(last))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	take("stored", 1).Commit()
	take("doubtful", 2).Commit()
	pending := take("pending", 3)
	clock := p.Clock()
	take("later", 4).Commit()
	outside := netip.MustParseAddr("10.99.0.1") // of a range that there was
	found := map[netip.Addr]string{at(1): "stored", at(5): "found", outside: "old"}
	p.Fill(map[netip.Addr]string{at(5): "found", outside: "old"})
	p.Settle(clock, found)
	for last, taken := range map[byte]bool{1: true, 2: false, 3: true, 4: true, 5: true} {
		if _, err := p.Take("x", at(last)); errors.Is(err, alloc.ErrTaken) != taken {
			t.Errorf("%s: %v, want taken: %t", at(last), err, taken)
		}
	}
	pending.Drop()
	p.Release("old", outside)
	if p.Held() != 4 { // stored, later, found, and the one that x has taken
		t.Errorf("%d are held", p.Held())
	}
}

// TestNoTwoHaveOne runs owners beside each other that store, fail, give back, and end in doubt, and a store that is looked at again and again: at no time
// are there two in it with one value.
func TestNoTwoHaveOne(t *testing.T) {
	const owners, rounds = 16, 400
	p := addresses(t, "10.43.0.0/27")
	var mu sync.Mutex
	stored := map[netip.Addr]string{}
	var wg sync.WaitGroup
	for n := range owners {
		wg.Go(func() {
			owner := fmt.Sprint("owner-", n)
			mine := map[netip.Addr]bool{}
			for range rounds {
				take := func() (*alloc.Claim[netip.Addr], error) { return p.Next(owner) }
				if rand.IntN(3) == 0 {
					take = func() (*alloc.Claim[netip.Addr], error) {
						return p.Take(owner, netip.AddrFrom4([4]byte{10, 43, 0, byte(1 + rand.IntN(30))}))
					}
				}
				c, err := take()
				switch {
				case c == nil || err != nil:
				case rand.IntN(4) == 0:
					c.Drop()
				case rand.IntN(4) == 0:
					c.Commit() // it may have been stored; it was not
				default:
					mu.Lock()
					if other := stored[c.Value]; other != "" {
						t.Errorf("%s is %s's and %s's", c.Value, other, owner)
					}
					stored[c.Value] = owner
					mu.Unlock()
					c.Commit()
					mine[c.Value] = true
				}
				for a := range mine {
					if rand.IntN(3) == 0 {
						mu.Lock()
						delete(stored, a)
						mu.Unlock()
						p.Release(owner, a)
						delete(mine, a)
					}
				}
			}
			for a := range mine {
				mu.Lock()
				delete(stored, a)
				mu.Unlock()
				p.Release(owner, a)
			}
		})
	}
	wg.Go(func() {
		for range rounds {
			clock := p.Clock()
			mu.Lock()
			found := map[netip.Addr]string{}
			for a, owner := range stored {
				found[a] = owner
			}
			mu.Unlock()
			p.Settle(clock, found)
		}
	})
	wg.Wait()
	p.Settle(p.Clock(), stored)
	if p.Held() != 0 {
		t.Errorf("%d are held by nobody", p.Held())
	}
}
