package announce

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"monopod.dev/monopod/internal/kit/iprange"
)

// link is an interface of the host on which neighbours ask for addresses.
type link struct {
	index int
	name  string
	mac   string
	// running: it is up, and connected.
	running bool
	// networks are the prefixes of its addresses.
	networks []netip.Prefix
}

// place is where an address of the host is.
type place struct {
	link int
	// alone: it is of no network, as all are that are made here.
	alone bool
	// tentative: the kernel looks whether somebody else has it; taken: somebody has.
	tentative, taken bool
}

// attempt is what came of looking whether an address is free on a link.
type attempt struct {
	link int
	// free: nobody has answered; else until is when it is tried again.
	free  bool
	until time.Time
	tries int
}

// facts are what is known.
type facts struct {
	links []link // by their indexes
	has   map[netip.Addr]place
	// wanted is what is to be announced, noted what is written down.
	wanted, noted map[netip.Addr]bool
	attempts      map[netip.Addr]attempt
	// probing are those for whose answers is being waited.
	probing map[netip.Addr]bool
	now     time.Time
}

// at is an address on a link.
type at struct {
	netip.Addr
	link int
}

// setOf is the set of some addresses.
func setOf(all []netip.Addr) map[netip.Addr]bool {
	set := make(map[netip.Addr]bool, len(all))
	for _, a := range all {
		set[a] = true
	}
	return set
}

// actions are what is to be done, in this order.
type actions struct {
	take []at
	// noted is what is written down then, and guarded.
	noted []netip.Addr
	add   []at
	// probe are those of which is to be found out whether they are free.
	probe []at
	// held are those that the host has and may announce.
	held []at
	// taken are those of which the kernel has found that another machine has them, own those that the host has already, not by this package, and unusable those
	// that no machine of the network can have.
	taken, own, unusable []at
	// again is when there is more to do, if nothing happens before; the zero time: never.
	again time.Time
}

// The pauses before an address that is in use is tried again: one that has just moved here from another node is free in a moment.
const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// retry is how long is waited after so many tries.
func retry(tries int) time.Duration { return min(firstRetry<<min(tries, 10), lastRetry) }

// decide is pure.
func decide(f facts) (d actions) {
	noted := map[netip.Addr]bool{}
	for a := range f.noted {
		p, there := f.has[a]
		l := f.linkOf(a)
		switch {
		case there && !p.alone: // somebody has made it the host's otherwise: it is his
			if f.wanted[a] {
				d.own = append(d.own, at{a, p.link})
			}
		case !f.wanted[a] || l == nil || there && p.taken:
			if there {
				d.take = append(d.take, at{a, p.link})
				if f.wanted[a] && p.taken {
					d.taken = append(d.taken, at{a, p.link})
				}
			}
		case there && p.link != l.index:
			d.take = append(d.take, at{a, p.link})
			f.seek(&d, noted, a, l)
		case there:
			noted[a] = true
			if !p.tentative && l.running {
				d.held = append(d.held, at{a, l.index})
			}
		default: // somebody has taken it away
			f.seek(&d, noted, a, l)
		}
	}
	for a := range f.wanted {
		if f.noted[a] {
			continue
		}
		if p, there := f.has[a]; there {
			d.own = append(d.own, at{a, p.link})
		} else if l := f.linkOf(a); l != nil {
			f.seek(&d, noted, a, l)
		}
	}
	d.noted = slices.SortedFunc(maps.Keys(noted), netip.Addr.Compare)
	for _, list := range []*[]at{&d.take, &d.add, &d.probe, &d.held, &d.taken, &d.own, &d.unusable} {
		slices.SortFunc(*list, func(a, b at) int { return a.Compare(b.Addr) })
	}
	return d
}

// seek adds an address to a link if it is free there, or has that found out. Of IPv6 the kernel finds it out.
func (f *facts) seek(d *actions, noted map[netip.Addr]bool, a netip.Addr, l *link) {
	tried := f.attempts[a]
	switch {
	case l.reserves(a):
		d.unusable = append(d.unusable, at{a, l.index})
	case !l.running || f.probing[a]: // it is told when that is over
	case tried.until.After(f.now):
		if d.again.IsZero() || tried.until.Before(d.again) {
			d.again = tried.until
		}
	case a.Is6() || tried.free && tried.link == l.index:
		noted[a] = true
		d.add = append(d.add, at{a, l.index})
	default:
		d.probe = append(d.probe, at{a, l.index})
	}
}

// reserves says that an address is that of a network of the link itself, or its broadcast address (RFC 919). IPv4 alone has them, and no network of two machines
// (RFC 3021).
func (l *link) reserves(a netip.Addr) bool {
	return slices.ContainsFunc(l.networks, func(n netip.Prefix) bool {
		r := iprange.Of(n)
		return a.Is4() && n.Bits() < 31 && (a == r.First || a == r.Last)
	})
}

// linkOf is the link of whose network an address is: the one that has it, else the first, those that run before others; nil: none is.
func (f *facts) linkOf(a netip.Addr) (best *link) {
	p, there := f.has[a]
	for i := range f.links {
		l := &f.links[i]
		if !slices.ContainsFunc(l.networks, func(n netip.Prefix) bool { return n.Contains(a) }) {
			continue
		}
		if there && l.index == p.link {
			return l
		}
		if best == nil || l.running && !best.running {
			best = l
		}
	}
	return best
}
