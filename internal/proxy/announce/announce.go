package announce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/failpoint"
)

// Config says how it is done.
type Config struct {
	// Dir is the directory of the note; it is made.
	Dir string
	// Own says that links of an interface group are the node's own, or another node's of this host, and of no network outside; nil: none are.
	Own func(group uint32) bool
	// Guard is told which addresses are the host's for the sake of services, before they are, and when they are no more, each time all of them.
	Guard func([]netip.Addr) error
	// Tell is told what has become of an address, once.
	Tell func(Outcome)
	Log  *slog.Logger
}

// Outcome is what has become of an address that is to be announced.
type Outcome struct {
	Address netip.Addr
	// Link is the name of the interface.
	Link string
	// By is who has the address instead, in words; empty: it is announced.
	By string
}

// Announcer announces addresses. Want, Noted and Close may be called from anywhere.
type Announcer struct {
	cfg  Config
	log  *slog.Logger
	nl   *netlink.Handle
	ns   netns.NsHandle
	wake chan struct{} // holds one value when something has changed

	mu     sync.Mutex
	wanted map[netip.Addr]bool
	noted  map[netip.Addr]bool
	links  map[int]bool // those whose changes matter

	// Of Run's goroutine only.
	guarded  map[netip.Addr]bool // what Guard was told
	attempts map[netip.Addr]attempt
	probing  map[netip.Addr]bool
	probed   chan probed
	fresh    map[netip.Addr]bool // added by this process, and not told yet
	rounds   map[netip.Addr]*round
	blamed   map[netip.Addr]string // whom Tell was told of
}

// probed is the answer to a probe.
type probed struct {
	link  int
	about []netip.Addr
	by    map[netip.Addr]string
	err   error
}

// round says how often neighbours are told still.
type round struct {
	link int
	mac  string
	left int
	next time.Time
}

const (
	firstPause   = time.Second
	longestPause = time.Minute
	// As MAX_NEIGHBOR_ADVERTISEMENT and RETRANS_TIMER (RFC 4861, section 10) have it.
	rounds     = 3
	roundPause = time.Second
)

// Open opens what is needed, in the network namespace of the calling thread. It changes nothing.
func Open(cfg Config) (_ *Announcer, err error) {
	a := &Announcer{
		cfg: cfg, log: cfg.Log, wake: make(chan struct{}, 1), probed: make(chan probed),
		attempts: map[netip.Addr]attempt{}, probing: map[netip.Addr]bool{}, fresh: map[netip.Addr]bool{}, rounds: map[netip.Addr]*round{}, blamed: map[netip.Addr]string{},
	}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	noted, err := readNote(cfg.Dir)
	if err != nil {
		return nil, err
	}
	a.noted = setOf(noted)
	a.guarded = a.noted
	if a.ns, err = netns.Get(); err != nil {
		return nil, fmt.Errorf("announce: %w", err)
	}
	if a.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, errors.Join(fmt.Errorf("announce: %w", err), a.ns.Close())
	}
	return a, nil
}

// Close gives the sockets back. The addresses stay, and are answered for. It is called after Run has returned.
func (a *Announcer) Close() {
	a.nl.Close()
	_ = a.ns.Close() // it was opened for reading
}

// Noted are the addresses that the host has, or may have. Before Run they are what the guard has to know of.
func (a *Announcer) Noted() []netip.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.SortedFunc(maps.Keys(a.noted), netip.Addr.Compare)
}

// Want says what is to be announced; nothing is done before the first call.
func (a *Announcer) Want(addresses []netip.Addr) {
	a.mu.Lock()
	a.wanted = setOf(addresses)
	a.mu.Unlock()
	a.poke()
}

func (a *Announcer) poke() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *Announcer) matters(index int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.links[index]
}

// Run announces what is wanted until ctx ends.
func (a *Announcer) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { a.watch(ctx) })
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	pause := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		case <-timer.C:
		case p := <-a.probed:
			a.heard(ctx, p)
		}
		again, err := a.step(ctx, &wg)
		if err != nil {
			level := slog.LevelDebug // said once, and not with each try
			if pause == 0 {
				level = slog.LevelError
			}
			pause = min(max(2*pause, firstPause), longestPause)
			again = time.Now().Add(pause)
			a.log.Log(ctx, level, "addresses of load balancers are not announced as they should be; trying again", "error", err, "after", pause)
		} else {
			pause = 0
		}
		if timer.Stop(); !again.IsZero() {
			timer.Reset(time.Until(again))
		}
	}
}

// step looks and does what is to be done now. again is when there is more, if nothing happens before; the zero time: never.
func (a *Announcer) step(ctx context.Context, wg *sync.WaitGroup) (again time.Time, err error) {
	a.mu.Lock()
	wanted, noted := a.wanted, a.noted
	a.mu.Unlock()
	if wanted == nil {
		return again, nil
	}
	links, has, err := a.look()
	if err != nil {
		return again, err
	}
	names := map[int]*link{}
	matter := map[int]bool{}
	for i := range links {
		names[links[i].index], matter[links[i].index] = &links[i], true
	}
	a.mu.Lock()
	a.links = matter
	a.mu.Unlock()
	now := time.Now()
	d := decide(facts{links: links, has: has, wanted: wanted, noted: noted, attempts: a.attempts, probing: a.probing, now: now})
	name := func(of at) string {
		if l := names[of.link]; l != nil {
			return l.name
		}
		return a.linkName(of.link)
	}
	if err := a.act(d, noted); err != nil {
		return again, err
	}
	for _, of := range d.own {
		a.blame(ctx, of.Addr, name(of), "this machine")
	}
	for _, of := range d.unusable {
		a.blame(ctx, of.Addr, name(of), "the network itself (network or broadcast address)")
	}
	for _, of := range d.taken {
		again = earlier(again, a.refused(ctx, of, name(of), "another machine"))
	}
	for link, about := range byLink(d.probe) {
		for _, addr := range about {
			a.probing[addr] = true
		}
		wg.Go(func() {
			p := probed{link: link, about: about}
			p.by, p.err = a.probe(ctx, link, about)
			select {
			case a.probed <- p:
			case <-ctx.Done():
			}
		})
	}
	keep(a.attempts, wanted)
	keep(a.fresh, wanted)
	keep(a.blamed, wanted)
	return earlier(earlier(again, d.again), a.announce(ctx, d.held, names, now)), nil
}

// act changes the host: it persists, then acts.
func (a *Announcer) act(d actions, noted map[netip.Addr]bool) error {
	for _, of := range d.take {
		if err := remove(a.nl, of.Addr, of.link); err != nil {
			return err
		}
	}
	if err := failpoint.Hit("proxy/announce/taken"); err != nil {
		return err
	}
	now := setOf(d.noted)
	if !maps.Equal(now, noted) {
		if err := writeNote(a.cfg.Dir, d.noted); err != nil {
			return err
		}
		a.mu.Lock()
		a.noted = now
		a.mu.Unlock()
		if err := failpoint.Hit("proxy/announce/noted"); err != nil {
			return err
		}
	}
	if !maps.Equal(now, a.guarded) {
		if err := a.cfg.Guard(d.noted); err != nil {
			return err
		}
		a.guarded = now
	}
	for _, of := range d.add {
		if err := failpoint.Hit("proxy/announce/guarded"); err != nil {
			return err
		}
		l := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: of.link}}
		if err := a.nl.AddrAdd(l, made(of.Addr)); err != nil && !errors.Is(err, unix.EEXIST) {
			delete(a.attempts, of.Addr) // whether it is free is asked again
			return fmt.Errorf("address %s: %w", of.Addr, err)
		}
		a.fresh[of.Addr] = true
		a.attempts[of.Addr] = attempt{tries: a.attempts[of.Addr].tries}
	}
	return failpoint.Hit("proxy/announce/added")
}

// remove takes an address away that was made here.
func remove(nl *netlink.Handle, addr netip.Addr, link int) error {
	err := nl.AddrDel(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: link}}, &netlink.Addr{IPNet: made(addr).IPNet})
	if err == nil || errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return fmt.Errorf("take the address %s away: %w", addr, err)
}

// heard takes the answer to a probe.
func (a *Announcer) heard(ctx context.Context, p probed) {
	for _, addr := range p.about {
		delete(a.probing, addr)
		switch by := p.by[addr]; {
		case p.err != nil:
			tries := a.attempts[addr].tries
			a.attempts[addr] = attempt{link: p.link, until: time.Now().Add(retry(tries)), tries: tries + 1}
		case by != "":
			a.refused(ctx, at{addr, p.link}, a.linkName(p.link), "the machine with the hardware address "+by)
		default:
			a.attempts[addr] = attempt{link: p.link, free: true, tries: a.attempts[addr].tries}
		}
	}
	if p.err != nil && ctx.Err() == nil {
		a.log.WarnContext(ctx, "whether addresses of load balancers are free is not found out; trying again", "interface", a.linkName(p.link), "error", p.err)
	}
}

// refused notes that another machine has the address, and says when it is tried again.
func (a *Announcer) refused(ctx context.Context, of at, link, by string) time.Time {
	tries := a.attempts[of.Addr].tries
	until := time.Now().Add(retry(tries))
	a.attempts[of.Addr] = attempt{link: of.link, until: until, tries: tries + 1}
	if tries > 0 { // the first may be the node that had it before
		a.blame(ctx, of.Addr, link, by)
	}
	return until
}

// blame tells who has an address instead, once.
func (a *Announcer) blame(ctx context.Context, addr netip.Addr, link, by string) {
	if a.blamed[addr] == by {
		return
	}
	a.blamed[addr] = by
	a.log.WarnContext(ctx, "an address of a load balancer is not announced: it is in use", "address", addr, "interface", link, "by", by,
		"remedy", "take it out of network.loadBalancerRanges, or from who has it")
	a.cfg.Tell(Outcome{addr, link, by})
}

// keep forgets what was of other addresses than these.
func keep[V any](known map[netip.Addr]V, these map[netip.Addr]bool) {
	maps.DeleteFunc(known, func(addr netip.Addr, _ V) bool { return !these[addr] })
}

// announce tells neighbours of the addresses that have come to a link, or whose link has come back or has another hardware address, some times. It returns when the
// next time is.
func (a *Announcer) announce(ctx context.Context, held []at, links map[int]*link, now time.Time) (next time.Time) {
	here := map[netip.Addr]bool{}
	due := map[int][]netip.Addr{}
	for _, of := range held {
		here[of.Addr] = true
		l := links[of.link]
		r := a.rounds[of.Addr]
		if r == nil || r.link != of.link || r.mac != l.mac {
			r = &round{of.link, l.mac, rounds, now}
			a.rounds[of.Addr] = r
		}
		if r.left > 0 && !r.next.After(now) {
			r.left, r.next = r.left-1, now.Add(roundPause)
			due[of.link] = append(due[of.link], of.Addr)
		}
		if r.left > 0 {
			next = earlier(next, r.next)
		}
		delete(a.attempts, of.Addr)
		delete(a.blamed, of.Addr)
		if a.fresh[of.Addr] {
			delete(a.fresh, of.Addr)
			a.log.InfoContext(ctx, "an address of a load balancer is announced", "address", of.Addr, "interface", l.name)
			a.cfg.Tell(Outcome{Address: of.Addr, Link: l.name})
		}
	}
	keep(a.rounds, here)
	for of, all := range due {
		if err := a.tell(of, all); err != nil {
			a.log.DebugContext(ctx, "neighbours are not told of addresses", "addresses", len(all), "interface", links[of].name, "error", err)
		}
	}
	return next
}

// linkName is the name of an interface, or its number where it has gone.
func (a *Announcer) linkName(index int) string {
	if l, err := a.nl.LinkByIndex(index); err == nil {
		return l.Attrs().Name
	}
	return fmt.Sprint(index)
}

func byLink(all []at) map[int][]netip.Addr {
	out := map[int][]netip.Addr{}
	for _, of := range all {
		out[of.link] = append(out[of.link], of.Addr)
	}
	return out
}

// earlier is the earlier of two times, of which the zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Remove takes the addresses away that were made by who had this directory, in the network namespace of the calling thread. It is idempotent. The guard may go after it.
func Remove(dir string) error {
	noted, err := readNote(dir)
	if err != nil || len(noted) == 0 {
		return err
	}
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("announce: %w", err)
	}
	defer nl.Close()
	all, err := addresses(nl)
	if err != nil {
		return err
	}
	for i := range all {
		p, ok := prefixOf(&all[i])
		if ok && p.IsSingleIP() && slices.Contains(noted, p.Addr()) {
			if err := remove(nl, p.Addr(), all[i].LinkIndex); err != nil {
				return err
			}
		}
	}
	if err := failpoint.Hit("proxy/announce/removed"); err != nil {
		return err
	}
	return writeNote(dir, nil)
}
