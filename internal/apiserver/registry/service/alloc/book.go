package alloc

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// Range is one out of which services get their addresses.
type Range struct {
	// Name is that of the object that has it.
	Name   string
	Prefix netip.Prefix
	values Values[netip.Addr]
}

// NewRange makes a Range.
func NewRange(name string, prefix netip.Prefix) Range { return Range{name, prefix, values(prefix)} }

// Holder is an object that says who has an address.
type Holder struct {
	// UID is the object's, Owner who has the address.
	UID, Owner string
	// Version is the store's revision at which the object was made.
	Version uint64
}

// Book says which addresses of some ranges are taken, as far as it is known here: the objects in the store decide, of which each is made for one owner only.
// Whoever wants an address claims it here, so that nobody else of this process tries it meanwhile, and makes the object then. What others make and delete is
// told by a watch, which lags: what this process has done is not undone by what it hears of it later. It is safe for concurrent use.
//
//	free --Next, Take--> claimed --Made--> taken --Leaving--> taken, leaving --Left--> free
//	                        |                ^ |
//	                      Drop: free     Added Deleted (by others)
type Book struct {
	mu     sync.Mutex
	ranges []Range
	taken  map[netip.Addr]*entry
	// leaving are the UIDs of objects that this process deletes, until it has heard of the end of each.
	leaving map[string]bool
	// freed is closed when an address has become free, and is another one then.
	freed chan struct{}
}

// entry is an address that is not free. Without a UID it is claimed, or the object of others is not known yet.
type entry struct {
	Holder
	claimed bool
}

// NewBook makes a Book without ranges, of which nothing is taken.
func NewBook() *Book {
	return &Book{taken: map[netip.Addr]*entry{}, leaving: map[string]bool{}, freed: make(chan struct{})}
}

// SetRanges says which ranges there are, in the order in which they are used.
func (b *Book) SetRanges(ranges []Range) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ranges = slices.Clone(ranges)
}

// Ranges are those of a family, as messages have them.
func (b *Book) Ranges(is4 bool) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	for _, r := range b.ranges {
		if r.Prefix.Addr().Is4() == is4 && !slices.Contains(all, r.Prefix.String()) {
			all = append(all, r.Prefix.String())
		}
	}
	return strings.Join(all, ", ")
}

// Take claims an address.
func (b *Book) Take(a netip.Addr) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.taken[a] != nil:
		return ErrTaken
	case !slices.ContainsFunc(b.ranges, func(r Range) bool { return r.Prefix.Contains(a) && r.values.Has(a) }):
		return ErrOutside
	}
	b.taken[a] = &entry{claimed: true}
	return nil
}

// Next claims an address of a family that is free.
func (b *Book) Next(is4 bool) (netip.Addr, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, static := range []bool{false, true} {
		for _, r := range b.ranges {
			if r.Prefix.Addr().Is4() != is4 {
				continue
			}
			from, to := r.values.Static, r.values.Size
			if static {
				from, to = 0, r.values.Static
			}
			if a, ok := search(r.values.At, from, to, func(a netip.Addr) bool { return b.taken[a] == nil }); ok {
				b.taken[a] = &entry{claimed: true}
				return a, nil
			}
		}
	}
	return netip.Addr{}, ErrFull
}

// search finds a value of a band that is free, from a random place on, so that what was given back is not given out again at once: others may still send to it.
func search[K comparable](at func(int) K, from, to int, free func(K) bool) (value K, ok bool) {
	n := to - from
	if n <= 0 {
		return value, false
	}
	first := rand.IntN(n) // nothing is secret about it
	for i := range n {
		if value = at(from + (first+i)%n); free(value) {
			return value, true
		}
	}
	return value, false
}

// Made: the object of a claimed address is stored.
func (b *Book) Made(a netip.Addr, h Holder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken[a] = &entry{Holder: h}
}

// Drop gives a claim up. refused: because there is an object of the address already, so that it is not free.
func (b *Book) Drop(a netip.Addr, refused bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.taken[a]
	if e == nil || !e.claimed {
		return
	}
	if e.claimed = false; e.UID == "" && !refused {
		delete(b.taken, a)
	}
}

// HolderOf is the object of an address, as far as it is known here.
func (b *Book) HolderOf(a netip.Addr) (Holder, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.taken[a]; e != nil && e.UID != "" {
		return e.Holder, true
	}
	return Holder{}, false
}

// Leaving: this process is about to delete an object. Left: it has, or, by its word, has not.
func (b *Book) Leaving(uid string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leaving[uid] = true
}

// Left ends what Leaving has begun.
func (b *Book) Left(a netip.Addr, uid string, deleted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !deleted {
		delete(b.leaving, uid)
		return
	}
	if e := b.taken[a]; e != nil && e.UID == uid {
		b.free(a, e)
	}
}

// free: the object of an address is gone. Somebody may claim it at this moment.
func (b *Book) free(a netip.Addr, e *entry) {
	if e.Holder = (Holder{}); !e.claimed {
		delete(b.taken, a)
		close(b.freed)
		b.freed = make(chan struct{})
	}
}

// Freed is closed when an address becomes free after this call.
func (b *Book) Freed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.freed
}

// Added is what a watch tells: there is an object. news: it was not known here.
func (b *Book) Added(a netip.Addr, h Holder) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.taken[a]
	switch {
	case b.leaving[h.UID]:
		return false
	case e == nil:
		b.taken[a] = &entry{Holder: h}
		return true
	case e.UID == h.UID:
		return false
	}
	e.Holder = h
	return !e.claimed // else it may be the one that is being made
}

// Deleted is what a watch tells: an object is gone. news: this process did not delete it; the address is claimed then, and whoever is told so gives the claim
// up, or makes the object anew.
func (b *Book) Deleted(a netip.Addr, uid string) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ours, e := b.leaving[uid], b.taken[a]
	delete(b.leaving, uid)
	switch {
	case e == nil || e.UID != uid && e.UID != "":
		return false
	case ours || e.claimed:
		b.free(a, e)
		return false
	}
	e.Holder, e.claimed = Holder{}, true
	return true
}

// Replace notes all objects that there were at a revision of the store.
func (b *Book) Replace(all map[netip.Addr]Holder, version uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	there := map[string]bool{}
	for a, h := range all {
		there[h.UID] = true
		switch e := b.taken[a]; {
		case b.leaving[h.UID], e != nil && e.Version > version:
		case e == nil:
			b.taken[a] = &entry{Holder: h}
		default:
			e.Holder = h
		}
	}
	for a, e := range b.taken {
		if _, is := all[a]; !is && e.Version <= version {
			b.free(a, e)
		}
	}
	for uid := range b.leaving {
		if !there[uid] {
			delete(b.leaving, uid) // its end was before, and nothing of it is told any more
		}
	}
}
