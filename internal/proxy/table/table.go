package table

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/nlsock"
	"monopod.dev/monopod/internal/host/ruleset"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/network/podnet"
	"monopod.dev/monopod/internal/proxy/plan"
)

// Config says what to keep, and where.
type Config struct {
	// Name is that of the table.
	Name string
	// Networks are those of the node's pods; none: others connect them, and nobody knows their interfaces.
	Networks podnet.Networks
	// Guards: there may be addresses for Guard.
	Guards bool
	Log    *slog.Logger
}

// Service is what is wanted for one.
type Service struct {
	// Created is when it was made: of two that want one address, the elder has it.
	Created time.Time
	Plan    plan.Service
}

// Table keeps the table as it is wanted. All methods are safe for concurrent use.
type Table struct {
	cfg     Config
	log     *slog.Logger
	names   names
	hostNS  netns.NsHandle
	writer  *nlsock.Socket // elements
	reader  *nlsock.Socket // nftables, and the kernel's flows
	routes  *nlsock.Socket
	watcher *ruleset.Watcher

	mu    sync.Mutex
	conn  *nftables.Conn // for what is no element; nil: none is open
	book  *book
	site  site
	shape *shape
	// guarded is what Guard was told.
	guarded []netip.Addr
	// ways are those that have their chains.
	ways map[wayKey]bool
	lost map[string]string // who has an element that a service would like, by the service: said once
}

// Open opens what is needed, in the network namespace of the calling thread. It changes nothing.
func Open(ctx context.Context, cfg Config) (_ *Table, err error) {
	t := &Table{cfg: cfg, log: cfg.Log, names: namesOf(cfg.Name), hostNS: netns.None(), book: newBook(), ways: map[wayKey]bool{}, lost: map[string]string{}}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	defer func() {
		if err != nil {
			t.Close()
			err = fmt.Errorf("services: %w", err)
		}
	}()
	if t.hostNS, err = netns.Get(); err != nil {
		return nil, err
	}
	for _, s := range []struct {
		at       **nlsock.Socket
		protocol int
	}{{&t.writer, unix.NETLINK_NETFILTER}, {&t.reader, unix.NETLINK_NETFILTER}, {&t.routes, unix.NETLINK_ROUTE}} {
		if *s.at, err = nlsock.Open(s.protocol); err != nil {
			return nil, err
		}
	}
	// A transaction is sent at once, and all its answers are there before the first is read.
	for _, option := range []int{unix.SO_SNDBUFFORCE, unix.SO_RCVBUFFORCE} {
		if err = unix.SetsockoptInt(t.writer.FD(), unix.SOL_SOCKET, option, transactionSize); err != nil {
			return nil, err
		}
	}
	t.watcher, err = ruleset.Watch(ctx, ruleset.WatchConfig{Own: t.writer.PortID(), Judge: t.judge, Look: t.look})
	return t, err
}

const transactionSize = 32 << 20

// Close gives the sockets back. The table stays, and does its work.
func (t *Table) Close() {
	if t.watcher != nil {
		t.watcher.Close()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.disconnect()
	for _, s := range []*nlsock.Socket{t.writer, t.reader, t.routes} {
		if s != nil {
			s.Close()
		}
	}
	if t.hostNS.IsOpen() {
		t.hostNS.Close()
	}
}

// Start makes the table as it is wanted for these services, and no others, and watches over them from then on. ranges are those of this node's pods, as far
// as they are known. What the kernel refuses of a service is in the errors by the services' names; the others are served.
func (t *Table) Start(ctx context.Context, ranges []netip.Prefix, all map[string]Service) (refused map[string]error, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	have, _ := t.read() // whatever cannot be read is made anew
	numbers := ordersOf(have)
	t.site = site{networks: t.cfg.Networks, ranges: ranges, guards: t.cfg.Guards}
	t.shape = shapeOf(t.site)
	t.book = newBook()
	t.book.replace(guardName, guardEntry(t.guarded), operations{})
	for name, s := range all {
		t.book.replace(name, entryOf(name, s, numbers), operations{})
	}
	t.watcher.SetActive(true)
	if err := t.sync(); err != nil {
		// One of them may be to blame: they are added one after another.
		t.book = newBook()
		t.book.replace(guardName, guardEntry(t.guarded), operations{})
		if err := t.sync(); err != nil {
			return nil, err
		}
		refused = map[string]error{}
		for name, s := range all {
			if err := t.apply(map[string]*Service{name: &s}); err != nil {
				refused[name] = err
			}
		}
	}
	gone := map[plan.Front]bool{}
	for el := range have {
		if f, ok := frontOf(el.key); ok && (el.set.kind == services || el.set.kind == outside) {
			gone[f] = true
		}
	}
	for _, e := range t.book.services {
		addFronts(gone, e)
	}
	t.forget(ctx, gone)
	return refused, nil
}

// Apply makes the changes of services in one transaction; nil is a service that is gone. Each service that the kernel refuses is left as it was, and is in the
// result with the reason.
func (t *Table) Apply(ctx context.Context, changes map[string]*Service) (refused map[string]error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	touched := map[plan.Front]bool{}
	for name := range changes {
		addFronts(touched, t.book.services[name])
	}
	if err := t.apply(changes); err != nil {
		refused = map[string]error{}
		for name, s := range changes {
			if len(changes) > 1 {
				err = t.apply(map[string]*Service{name: s})
			}
			if err != nil {
				refused[name] = err
			}
		}
	}
	for name := range changes {
		addFronts(touched, t.book.services[name])
	}
	t.forget(ctx, touched)
	return refused
}

// apply makes the changes, or none of them.
func (t *Table) apply(changes map[string]*Service) error { return t.replace(t.book.entriesOf(changes)) }

// replace puts entries in the place of those of the same names, or none of them.
func (t *Table) replace(entries map[string]*entry) (err error) {
	ops, before := t.book.put(entries)
	if err = t.carryOut(ops); err != nil {
		// Perhaps the kernel has not what it is thought to have: then that is put right, with the changes.
		err = t.sync()
	}
	if err != nil {
		t.book.put(before)
		return err
	}
	t.tellLosers(ops)
	return nil
}

// guardName is of what is no service's in the book; services have a slash in their names.
const guardName = "guarded"

// guardEntry is what the book has of guarded addresses; nil: there are none.
func guardEntry(addresses []netip.Addr) *entry {
	if len(addresses) == 0 {
		return nil
	}
	e := &entry{name: guardName}
	for _, a := range addresses {
		e.items = append(e.items, item{element: element{setID{guarded, uint8(familyOf(a))}, string(a.AsSlice())}})
	}
	slices.SortFunc(e.items, compareItems)
	return e
}

// Guard says which addresses are the host's own for the sake of services alone, each once: whoever connects to one reaches a service, or is refused, whatever
// else the host has at that port, pods' host ports and node ports included; ICMP is the host's. They replace those of the call before. Before Start it is what
// Start begins with. On an error they are as they were.
func (t *Table) Guard(addresses []netip.Addr) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shape != nil {
		if err := t.replace(map[string]*entry{guardName: guardEntry(addresses)}); err != nil {
			return err
		}
	}
	t.guarded = slices.Clone(addresses)
	return nil
}

// tellLosers says which services want what another one has.
func (t *Table) tellLosers(ops operations) {
	for el, op := range ops {
		if op.loser == "" || t.lost[op.loser] == op.owner {
			continue
		}
		t.lost[op.loser] = op.owner
		at := ""
		if f, ok := frontOf(el.key); ok && (el.set.kind == services || el.set.kind == outside) {
			at = netip.AddrPortFrom(f.Addr, f.Port).String()
		}
		t.log.Warn("two services want the same address and port; the elder has it", "service", op.loser, "elder", op.owner, "at", at)
	}
}

// SetRanges says which ranges pods of this node have.
func (t *Table) SetRanges(ranges []netip.Prefix) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shape == nil || slices.Equal(t.site.ranges, ranges) {
		return nil
	}
	t.site.ranges = ranges
	t.shape = shapeOf(t.site)
	return t.sync()
}

// carryOut makes the operations in one transaction.
func (t *Table) carryOut(ops operations) error {
	if err := t.addWays(ops.ways()); err != nil {
		return err
	}
	reqs := t.requests(ops)
	if len(reqs) == 0 {
		return nil
	}
	if err := failpoint.Hit("proxy/table/transaction"); err != nil {
		return err
	}
	return t.explain(t.writer.Batch(reqs...))
}

// requests are the operations, those that take away first.
func (t *Table) requests(ops operations) (reqs []nlsock.Request) {
	gone, come := ops.elements()
	for _, id := range setIDs() {
		reqs = append(reqs, ruleset.ElementRequests(t.names.set(id), gone[id], false)...)
	}
	for _, id := range setIDs() {
		reqs = append(reqs, ruleset.ElementRequests(t.names.set(id), come[id], true)...)
	}
	return reqs
}

// connect opens the connection for what is no element, or takes the one that is open.
//
// It lasts: to close one makes the kernel wait until nobody uses what was deleted over it, some 10 ms. After an error it is replaced, for answers to a failed
// transaction may be in it.
func (t *Table) connect() (err error) {
	if t.conn != nil {
		return nil
	}
	t.conn, err = nftables.New(nftables.WithNetNSFd(int(t.hostNS)), nftables.AsLasting(), nftables.WithSockOptions(func(c *netlink.Conn) error {
		raw, err := c.SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) {
				if name, err := unix.Getsockname(int(fd)); err == nil {
					t.watcher.SetWriter(name.(*unix.SockaddrNetlink).Pid)
				}
			})
		}
		return errors.Join(err, c.SetReadBuffer(transactionSize), c.SetWriteBuffer(transactionSize))
	}))
	return t.explain(err)
}

func (t *Table) disconnect() {
	if t.conn != nil {
		_ = t.conn.CloseLasting() // nothing is lost with it
		t.conn = nil
	}
}
