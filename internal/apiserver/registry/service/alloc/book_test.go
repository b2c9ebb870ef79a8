package alloc_test

import (
	"errors"
	"net/netip"
	"testing"

	"monopod.dev/monopod/internal/apiserver/registry/service/alloc"
)

func book(cidrs ...string) *alloc.Book {
	b := alloc.NewBook()
	var all []alloc.Range
	for _, c := range cidrs {
		all = append(all, alloc.NewRange(c, netip.MustParsePrefix(c)))
	}
	b.SetRanges(all)
	return b
}

func TestBookOfRanges(t *testing.T) {
	b := book("10.1.0.0/30", "fd00::/64", "10.2.0.0/30", "10.3.0.0/32")
	got := map[netip.Addr]bool{}
	for range 4 {
		a, err := b.Next(true)
		if err != nil {
			t.Fatal(err)
		}
		got[a] = true
	}
	for _, want := range []string{"10.1.0.1", "10.1.0.2", "10.2.0.1", "10.2.0.2"} {
		if !got[netip.MustParseAddr(want)] {
			t.Errorf("%s was not given out: %v", want, got)
		}
	}
	if _, err := b.Next(true); !errors.Is(err, alloc.ErrFull) {
		t.Errorf("all are taken: %v", err)
	}
	if a, err := b.Next(false); err != nil || !netip.MustParsePrefix("fd00::/64").Contains(a) {
		t.Errorf("of the other family: %s, %v", a, err)
	}
	for a, want := range map[string]error{
		"10.1.0.1": alloc.ErrTaken, "10.1.0.3": alloc.ErrOutside, "10.4.0.1": alloc.ErrOutside, "fd00::": alloc.ErrOutside, "fd00::1234:5678:9abc": nil, "10.3.0.0": alloc.ErrOutside,
	} {
		if err := b.Take(netip.MustParseAddr(a)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", a, err, want)
		}
	}
	if got := b.Ranges(true); got != "10.1.0.0/30, 10.2.0.0/30, 10.3.0.0/32" {
		t.Errorf("ranges %q", got)
	}
}

// What a watch tells late of what this process has done changes nothing; what others have done does.
func TestBookHears(t *testing.T) {
	a := netip.MustParseAddr("10.1.0.1")
	of := func(uid string, version uint64) alloc.Holder {
		return alloc.Holder{UID: uid, Owner: "o", Version: version}
	}
	take := func(b *alloc.Book) error { return b.Take(a) }
	made := func(b *alloc.Book) {
		_ = b.Take(a)
		b.Made(a, of("ours", 5))
	}
	given := func(b *alloc.Book) {
		made(b)
		b.Leaving("ours")
		b.Left(a, "ours", true)
	}
	for name, c := range map[string]struct {
		do   func(b *alloc.Book)
		free bool
	}{
		"nothing":                                  {func(*alloc.Book) {}, true},
		"a claim":                                  {func(b *alloc.Book) { _ = b.Take(a) }, false},
		"a claim that was dropped":                 {func(b *alloc.Book) { _ = b.Take(a); b.Drop(a, false) }, true},
		"a claim that somebody was faster than":    {func(b *alloc.Book) { _ = b.Take(a); b.Drop(a, true) }, false},
		"one that is heard of while it is claimed": {func(b *alloc.Book) { _ = b.Take(a); b.Added(a, of("theirs", 5)); b.Drop(a, false) }, false},
		"one that came and went while it was claimed": {func(b *alloc.Book) {
			_ = b.Take(a)
			b.Added(a, of("theirs", 5))
			b.Deleted(a, "theirs")
			b.Drop(a, false)
		}, true},
		"made, and heard of": {func(b *alloc.Book) { made(b); b.Added(a, of("ours", 5)) }, false},
		"given back":         {given, true},
		"given back, and its making heard of late":       {func(b *alloc.Book) { given(b); b.Added(a, of("ours", 5)) }, true},
		"given back, made again, and the first end late": {func(b *alloc.Book) { given(b); _ = b.Take(a); b.Made(a, of("again", 7)); b.Deleted(a, "ours") }, false},
		"its end heard of before it was known here":      {func(b *alloc.Book) { made(b); b.Leaving("ours"); b.Deleted(a, "ours"); b.Left(a, "ours", true) }, true},
		"a deletion that failed":                         {func(b *alloc.Book) { made(b); b.Leaving("ours"); b.Left(a, "ours", false) }, false},
		"others'":                                        {func(b *alloc.Book) { b.Added(a, of("theirs", 5)) }, false},
		"a list without it":                              {func(b *alloc.Book) { made(b); b.Replace(nil, 9) }, true},
		"an older list without it":                       {func(b *alloc.Book) { made(b); b.Replace(nil, 4) }, false},
		"a list without what is claimed":                 {func(b *alloc.Book) { _ = b.Take(a); b.Replace(nil, 9) }, false},
		"a list with it":                                 {func(b *alloc.Book) { b.Replace(map[netip.Addr]alloc.Holder{a: of("theirs", 5)}, 9) }, false},
		"a list of when it was there, after it has left": {func(b *alloc.Book) { given(b); b.Replace(map[netip.Addr]alloc.Holder{a: of("ours", 5)}, 6) }, true},
	} {
		b := book("10.1.0.0/24")
		c.do(b)
		if err := take(b); (err == nil) != c.free {
			t.Errorf("%s: %v, want that it is free: %v", name, err, c.free)
		}
	}
	// Whoever hears that others have deleted one holds its address until it is known whether somebody has it.
	b := book("10.1.0.0/24")
	b.Added(a, of("theirs", 5))
	freed := b.Freed()
	if !b.Deleted(a, "theirs") || take(b) == nil {
		t.Error("the address was free at once")
	}
	b.Drop(a, false)
	if take(b) != nil {
		t.Error("the address is not free")
	}
	b.Drop(a, false)
	made(b)
	b.Leaving("ours")
	b.Left(a, "ours", true)
	select {
	case <-freed:
	default:
		t.Error("nobody was told that an address is free")
	}
}
