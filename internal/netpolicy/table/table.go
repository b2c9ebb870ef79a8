// Package table has the kernel judge packets by compiled rules: one table of nftables, and nothing else of the host.
//
//	table inet <name> {
//	    map inpods4 { type ipv4_addr : mark . mark }         # the class of a pod of this node, by its address
//	    map inpeers4 { type ipv4_addr : mark . mark . mark } # the class of a peer that is a pod
//	    map inblocks4 { ...; interval }                      # ... that is none
//	    set inopen { type mark . mark }                      # between which classes all may pass
//	    map inported { type mark . mark : mark . mark }      # ... some ports: which profile of them
//	    ...                                                  # the same for IPv6, and for what goes out
//	    set ports { type mark . inet_proto . inet_service }  # the ports of each profile
//	    set self4 { type ipv4_addr . ipv4_addr }             # isolated pods reach themselves
//	    chain forward { type filter hook forward; replies and what is related accept; iifgroup <pods> jump out; oifgroup <pods> jump in }
//	    chain in { goto in4 or in6 }
//	    chain in4 { ...; drop }                              # a fixed number of lookups
//	    chain output { ... }
//	}
//
// The host forwards what pods send to each other: the one chain sees all packets, and connection tracking both directions of all connections. A pod whose address is not
// in the maps is isolated altogether.
//
// It guarantees that every change of rules is one transaction: there is no moment at which a packet is judged by less than the rules before or the rules
// after. When the process ends the table stays.
package table

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/ruleset"
	"monopod.dev/monopod/internal/netpolicy/compile"
	"monopod.dev/monopod/internal/network/podnet"
)

// Config says which table.
type Config struct {
	// Networks are those of the pods whose packets it judges.
	Networks podnet.Networks
	// Log; nil: none.
	Log *slog.Logger
}

// Name is that of the table.
func (c Config) Name() string { return c.Networks.PolicyTable() }

// elementsInMessage keeps a message below the 64 KiB that an attribute of netlink can have, roomInSocket a transaction of all rules below what a socket takes.
const (
	elementsInMessage = 500
	roomInSocket      = 64 << 20
)

// Table is the table of one node, in the network namespace in which it was opened. All methods are safe for concurrent use.
type Table struct {
	cfg     Config
	log     *slog.Logger
	watcher *ruleset.Watcher
	netNS   int

	mu        sync.Mutex
	conn      *nftables.Conn
	installed content          // as it is in the kernel; nil: what is there is not known
	version   *compile.Version // of the rules that it is of
	rules     map[string]int   // how many rules its chains have
	repairs   int
}

// Open opens the way to the kernel, in the network namespace of the calling thread. It changes nothing.
func Open(ctx context.Context, cfg Config) (_ *Table, err error) {
	t := &Table{cfg: cfg, log: cfg.Log}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
	// The files stay those of this thread's namespace, whichever thread makes a connection later.
	if t.netNS, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("network policies: network namespace: %w", err)
	}
	if t.watcher, err = ruleset.Watch(ctx, ruleset.WatchConfig{Judge: t.concern, Look: t.repair}); err != nil {
		return nil, fmt.Errorf("network policies: %w", err)
	}
	return t, nil
}

// concern judges a change of the rule set that somebody else has made.
func (t *Table) concern(e ruleset.Event) ruleset.Concern {
	if e.Table == t.cfg.Name() {
		return ruleset.Touched
	}
	return ruleset.Untouched
}

// repair writes the table anew after somebody has changed it. It is called, too, where events were lost, as they are while others make large changes: then nobody
// need have.
func (t *Table) repair(ctx context.Context) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.installed == nil || t.intact() {
		return false
	}
	t.log.WarnContext(ctx, "somebody has changed the rules of network policies; they are written anew", "table", t.cfg.Name())
	if err := t.install(t.installed); err != nil {
		t.log.ErrorContext(ctx, "network policies are not enforced", "error", err)
	}
	t.repairs++
	return true
}

// Apply has packets judged by rules from now on: it changes what differs, or writes all where it is not known what is there.
//
// Errors: FailedPrecondition (the kernel cannot do it).
func (t *Table) Apply(r *compile.Rules) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.apply(r)
	if err == nil {
		t.version = r.Version
	}
	return err
}

func (t *Table) apply(r *compile.Rules) error {
	if t.installed == nil {
		t.watcher.SetActive(true) // before, so that no change of others' is missed
		err := t.install(contentOf(r, nil))
		t.watcher.SetActive(err == nil)
		return err
	}
	var want content // nil: what is there, with the changes
	var ch []change
	if r.Before != nil && r.Before == t.version {
		ch = touched(r, t.installed)
	} else {
		want = contentOf(r, t.installed)
		ch = changes(t.installed, want)
	}
	if len(ch) == 0 {
		return nil
	}
	err := t.transact(func(w *writer) error { return w.change(ch) })
	if err != nil { // somebody may have changed the table a moment ago
		t.log.Warn("rules of network policies could not be changed; they are written anew", "error", err)
		return t.install(contentOf(r, t.installed))
	}
	if want == nil {
		t.installed.make(ch)
	} else {
		t.installed = want
	}
	return nil
}

// install writes the table as a whole, in one transaction. It is called with the lock held.
func (t *Table) install(want content) error {
	var rules map[string]int
	err := t.transact(func(w *writer) error {
		err := w.whole(want)
		rules = w.rules
		return err
	})
	if err != nil {
		return explain("writing the table", t.cfg.Name(), err)
	}
	t.installed, t.rules = want, rules
	return nil
}

// whole writes the table.
func (w *writer) whole(want content) error {
	former, err := w.former()
	if err != nil {
		return err
	}
	if former != nil {
		w.conn.AddTable(former) // somebody may have deleted it meanwhile
		w.conn.DelTable(former)
	}
	t := w.table()
	w.renew(t)
	for _, s := range setSpecs() {
		if err := w.conn.AddSet(s.set(t), nil); err != nil {
			return err
		}
		if err := w.add(s, want[s.name]); err != nil {
			return err
		}
	}
	w.chains(t)
	return nil
}

// renew makes a table that is empty, whether there was one or not.
func (w *writer) renew(t *nftables.Table) {
	w.conn.AddTable(t) // first, so that deleting it cannot fail
	w.conn.DelTable(t)
	w.conn.AddTable(t)
}

func (w *writer) table() *nftables.Table {
	return &nftables.Table{Name: w.cfg.Name(), Family: nftables.TableFamilyINet}
}

func (w *writer) add(s setSpec, elements map[element]string) error {
	for part := range slices.Chunk(s.inLibrary(elements), elementsInMessage) {
		if err := w.conn.SetAddElements(s.set(w.table()), part); err != nil {
			return err
		}
	}
	return nil
}

// change makes the changes: first all that goes, so that no set is ever asked to hold two answers.
func (w *writer) change(all []change) error {
	specs := map[string]setSpec{}
	for _, s := range setSpecs() {
		specs[s.name] = s
	}
	for _, ch := range all {
		s := specs[ch.set]
		set := s.set(w.table())
		if ch.replaced {
			w.conn.FlushSet(set)
			continue
		}
		var lost []nftables.SetElement
		for _, e := range ch.lost {
			lost = append(lost, e.inLibrary())
		}
		for part := range slices.Chunk(lost, elementsInMessage) {
			if err := w.conn.SetDeleteElements(set, part); err != nil {
				return err
			}
		}
	}
	for _, ch := range all {
		if err := w.add(specs[ch.set], ch.got); err != nil {
			return err
		}
	}
	return nil
}

// transact makes one transaction. It is called with the lock held.
func (t *Table) transact(f func(*writer) error) error {
	if t.conn == nil {
		conn, err := nftables.New(nftables.WithNetNSFd(t.netNS), nftables.AsLasting(), nftables.WithSockOptions(t.prepare))
		if err != nil {
			return fmt.Errorf("nftables: %w", err)
		}
		t.conn = conn
	}
	err := f(&writer{conn: t.conn, cfg: t.cfg, rules: map[string]int{}})
	if err == nil {
		err = t.conn.Flush()
	}
	if err != nil { // answers to a transaction that failed may be left in it
		_ = t.conn.CloseLasting()
		t.conn = nil
	}
	return err
}

// prepare makes room in a socket for all rules at once and for the kernel's answers, and tells the watcher whose transactions are own ones.
func (t *Table) prepare(c *netlink.Conn) error {
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			if name, err := unix.Getsockname(int(fd)); err == nil {
				t.watcher.SetWriter(name.(*unix.SockaddrNetlink).Pid)
			}
		})
	}
	return errors.Join(err, c.SetReadBuffer(roomInSocket), c.SetWriteBuffer(roomInSocket))
}

// Remove takes the table away, and what a former version has left beside it, whoever has written them. It is idempotent.
func (t *Table) Remove() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watcher.SetActive(false)
	t.installed, t.version = nil, nil
	err := t.transact(func(w *writer) error {
		tables, err := w.tables()
		for _, one := range tables {
			w.conn.DelTable(one)
		}
		return err
	})
	return explain("removing the table", t.cfg.Name(), err)
}

// Installed says whether this process has written the table, and how many elements it has.
func (t *Table) Installed() (bool, int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for elements := range maps.Values(t.installed) {
		n += len(elements)
	}
	return t.installed != nil, n
}

// Close gives the sockets back. The table stays.
func (t *Table) Close() {
	if t.watcher != nil {
		t.watcher.Close()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn != nil {
		_ = t.conn.CloseLasting() // nothing is lost with it
		t.conn = nil
	}
	if t.netNS > 0 {
		unix.Close(t.netNS)
		t.netNS = 0
	}
}

// explain says what a kernel lacks that cannot do it.
func explain(doing, name string, err error) error {
	if err == nil {
		return nil
	}
	var op *net.OpError
	lacking := errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EPROTONOSUPPORT) ||
		errors.Is(err, unix.ENOENT) || errors.As(err, &op) && errors.Is(op.Err, unix.ENOENT)
	if lacking {
		return fmt.Errorf("network policies: nftables table %q: %s: %w; the kernel needs nf_tables with the family inet, and nft_ct "+
			"(CONFIG_NF_TABLES_INET, CONFIG_NFT_CT; modprobe -a nf_tables nft_ct): %w", name, doing, err, errdefs.ErrFailedPrecondition)
	}
	return fmt.Errorf("network policies: nftables table %q: %s: %w", name, doing, err)
}
