// Package rules is the network's firewall: who may send with which address, host ports, masquerading, bounds of connections, and what keeps pods from the
// host's loopback addresses. It is one table of nftables, written from the leases, and marked rules in chains of others.
package rules

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/containerd/errdefs"
	"github.com/google/nftables"
	mdnetlink "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/nlsock"
	"monopod.dev/monopod/internal/host/ruleset"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/lease"
)

// Config says what the rules are of.
type Config struct {
	// Table is the name of the nftables table, of the family inet.
	Table string
	// Bridge is the name of the bridge. It marks the rules in chains of others.
	Bridge string
	// Leases are those that the rules are written from. What they say of a sandbox is so before Admit or Unmap are called for it.
	Leases Leases
	// NetNS is the host's network namespace.
	NetNS netns.NsHandle
	// Links looks interfaces of the host up.
	Links func(name string) (netlink.Link, error)
	// Writes is told the netlink port of each connection by which rules are written: what comes from it is this node's own doing.
	Writes func(port uint32)
	// SwitchedOn says for which families this node has switched the host's forwarding on.
	SwitchedOn func() (Families, error)
	// DNS are the addresses of the host at which it serves the cluster's DNS.
	DNS []netip.Addr
	// OwnPorts are those at which the node itself serves.
	OwnPorts []network.OwnPort
	// ConnectionsPerPod is how many connections a sandbox may have open; see network/bridge.Config.
	ConnectionsPerPod *int32
	// NoSourceGuard, NoForwardGuard and NoForeignRules leave out what they name; see network/bridge.Config.
	NoSourceGuard, NoForwardGuard, NoForeignRules bool
	Log                                           *slog.Logger
}

// Leases is the ledger, as far as rules follow from it.
type Leases interface {
	// All are the leases by sandbox.
	All() map[string]lease.Lease
	// UsedRanges are the ranges that sandboxes have addresses of.
	UsedRanges() []netip.Prefix
}

// Families are those of addresses.
type Families struct{ IP4, IP6 bool }

// Any says that it is one at least.
func (f Families) Any() bool { return f.IP4 || f.IP6 }

// Rules is the nftables side of the network: the own table (table.go and what it names), and marked rules in chains of others
// (foreign.go). All methods are safe for concurrent use; one transaction is made at a time.
type Rules struct {
	cfg      Config
	log      *slog.Logger
	ct       *nlsock.Socket                     // for questions
	elements *nlsock.Socket                     // for what comes and goes with sandboxes
	foreign  atomic.Pointer[map[chainName]bool] // where others' rules for forwarded packets are, as last found
	shared   atomic.Bool                        // others forward packets, with this node's knowledge

	mu         sync.Mutex
	nft        *nftables.Conn   // nil: none is open
	verified   uint32           // the generation of the rule set when it was last found as it should be; 0: never
	installed  map[ownChain]int // how many rules this process has written, by chain; nil: none yet
	elementsOf map[string]bool  // whose elements are written, by the host's end; true: its host ports, too
	forwards   Families         // of the forward guard, as it was written
	opened     []netip.Prefix   // the ranges that the marked rules in others' chains are of; nil: not known
	bound      bound            // as it was written
	unbounded  error            // why connections of sandboxes are not bounded though they should be
}

// firewall is one operation, with the lock held.
type firewall struct {
	conn  *nftables.Conn
	rules *Rules
	table *nftables.Table
	// written counts the rules that were put into the transaction.
	written map[ownChain]int
}

// ownChain is a chain of the own tables.
type ownChain struct {
	family nftables.TableFamily
	name   string
}

// Open opens what reaches nftables of the network namespace of the calling thread, which is that of Config.NetNS. It changes nothing.
func Open(cfg Config) (*Rules, error) {
	r := &Rules{cfg: cfg, log: cfg.Log, elementsOf: map[string]bool{}}
	for _, s := range []**nlsock.Socket{&r.ct, &r.elements} {
		var err error
		if *s, err = nlsock.Open(unix.NETLINK_NETFILTER); err != nil {
			r.Close()
			return nil, err
		}
	}
	return r, nil
}

// Close gives the sockets back. Nothing changes on the host.
func (r *Rules) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.disconnect()
	for _, s := range []*nlsock.Socket{r.ct, r.elements} {
		if s != nil {
			s.Close()
		}
	}
}

// PortID is the netlink port by which elements come and go with sandboxes.
func (r *Rules) PortID() uint32 { return r.elements.PortID() }

// Install writes the table, with the elements of all sandboxes, and the marked rules, and looks whether they are there.
//
// Errors: FailedPrecondition (the kernel lacks nftables, or a part of it).
func (r *Rules) Install() error {
	return r.do(func(f *firewall) error {
		if err := f.install(); err != nil {
			return err
		}
		return f.check()
	})
}

// Verify looks whether the own table and the marked rules are as they should be, unless nobody has changed anything since it
// did the last time. What is missing in foreign chains it adds, and it follows others who begin or cease to need forwarding. It is Unavailable when
// something else is missing.
func (r *Rules) Verify() error { return r.do((*firewall).verify) }

// Check says what is missing of the own table.
func (r *Rules) Check() error { return r.do((*firewall).check) }

// Remove takes the table and the marked rules away.
func (r *Rules) Remove() error { return r.do((*firewall).remove) }

// Admit lets the sandbox send with its addresses, unless that was done, and with ports gives it its host ports, in one
// transaction.
func (r *Rules) Admit(rec lease.Lease, ports bool) error {
	return r.do(func(f *firewall) error {
		var reqs []nlsock.Request
		if ports {
			reqs = f.portRequests(rec, true)
		}
		had, known := r.elementsOf[rec.Interface]
		if !known {
			reqs = append(reqs, f.sourceRequests(true, rec)...)
		}
		if err := f.change(reqs); err != nil {
			return err
		}
		r.elementsOf[rec.Interface] = had || ports
		return nil
	})
}

// Unmap takes the host ports of sandboxes away that leave: of many with the whole table, which is one transaction.
func (r *Rules) Unmap(recs ...lease.Lease) error {
	return r.do(func(f *firewall) error {
		if len(recs) == 1 {
			return f.change(f.portRequests(recs[0], false))
		}
		return f.install()
	})
}

// Dismiss takes what the source guard has for sandboxes whose interfaces are gone. What cannot be taken away does not matter:
// it is about names of interfaces that nobody has.
func (r *Rules) Dismiss(recs ...lease.Lease) {
	for part := range slices.Chunk(recs, elementsInMessage/5) {
		err := r.do(func(f *firewall) error {
			for _, rec := range part {
				delete(r.elementsOf, rec.Interface)
			}
			if !f.guards() {
				return nil
			}
			// Added first, so that taking them away cannot fail.
			return f.send(append(f.sourceRequests(true, part...), f.sourceRequests(false, part...)...))
		})
		if err != nil {
			r.log.Debug("the source guard keeps elements of sandboxes that are gone, until it is written anew", "error", err)
		}
	}
}

// do calls f, one call at a time.
//
// The connection lasts: to close one makes the kernel wait until nobody uses what was deleted over it, some 10 ms. After an
// error it is replaced, for answers to a failed transaction may be in it.
func (r *Rules) do(f func(*firewall) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	fw := &firewall{rules: r, table: &nftables.Table{Name: r.cfg.Table, Family: nftables.TableFamilyINet}}
	if err := fw.connect(); err != nil {
		return err
	}
	err := f(fw)
	if err != nil {
		r.disconnect()
	}
	return err
}

// connect takes the connection, or makes one.
func (f *firewall) connect() (err error) {
	if f.rules.nft == nil {
		if f.rules.nft, err = nftables.New(nftables.WithNetNSFd(int(f.rules.cfg.NetNS)), nftables.AsLasting(), nftables.WithSockOptions(f.rules.prepareSocket)); err != nil {
			return fmt.Errorf("network: nftables: %w", err)
		}
	}
	f.conn = f.rules.nft
	return nil
}

// prepareSocket makes room for answers: the kernel answers each rule of a transaction before the first answer is read. And it
// tells whose transactions are this node's own.
func (r *Rules) prepareSocket(c *mdnetlink.Conn) error {
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			if name, err := unix.Getsockname(int(fd)); err == nil {
				r.cfg.Writes(name.(*unix.SockaddrNetlink).Pid)
			}
		})
	}
	return errors.Join(err, c.SetReadBuffer(4<<20))
}

// disconnect is called with the lock held.
func (r *Rules) disconnect() {
	if r.nft != nil {
		_ = r.nft.CloseLasting() // nothing is lost with it
		r.nft = nil
	}
}

// sizeofNfgenmsg is that of struct nfgenmsg, which begins the messages of netfilter.
const sizeofNfgenmsg = 4

// generation is the number of the last transaction that anybody has made with nftables on this host.
func (r *Rules) generation() (gen uint32, err error) {
	const attrID = 1 // NFTA_GEN_ID
	q := nlsock.Request{What: "read the generation of nftables", Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Body: make([]byte, sizeofNfgenmsg)}
	err = r.ct.Dump(q, func(body []byte) {
		if len(body) < sizeofNfgenmsg {
			return
		}
		nlsock.EachAttr(body[sizeofNfgenmsg:], func(typ uint16, data []byte) {
			if typ == attrID && len(data) == 4 {
				gen = binary.BigEndian.Uint32(data)
			}
		})
	})
	return gen, err
}

// verify looks whether the own tables and the marked rules are as they should be, unless nobody has changed anything since it
// did the last time. What is missing in foreign chains it adds, and it follows others who begin or cease to need forwarding.
func (f *firewall) verify() error {
	gen, err := f.rules.generation()
	if err != nil {
		return f.explain("reading the generation", err)
	}
	if limit := f.rules.wantBound(); f.rules.bound != limit && f.rules.installed != nil {
		f.rules.log.Info("the room for connections of this host has changed", "connectionsPerPod", limit.connections, "before", f.rules.bound.connections)
		return f.install()
	}
	if gen != 0 && gen == f.rules.verified {
		return nil
	}
	if err := f.check(); err != nil {
		return err
	}
	want, err := f.wantForwardGuard()
	if err != nil {
		return err
	}
	if want != f.rules.forwards {
		f.rules.log.Info("the host's other networks", "Families", want.Any(), "before", f.rules.forwards.Any())
		return f.install()
	}
	if err := f.openForwardChains(); err != nil {
		return err
	}
	f.rules.verified = gen // before what has just been added, which is looked at once more, then
	return nil
}

// install writes the table, with the elements of all sandboxes, and the marked rules. Bounds of connections are left out where the kernel has no means for them.
func (f *firewall) install() error {
	r := f.rules
	unbounded := r.unbounded
	r.unbounded = nil
	err := f.write()
	if lacksMeans(err) {
		r.unbounded = err
		r.disconnect()
		if err := f.connect(); err != nil {
			return err
		}
		err = f.write()
	}
	if err != nil {
		return f.explain("installing the table", err)
	}
	if r.unbounded != nil && unbounded == nil {
		r.log.Warn(boundMissing, "error", r.unbounded)
	}
	if r.bound != r.wantBound() {
		// Before the first rule that asks connection tracking the kernel did not tell how much room there is.
		if err := f.write(); err != nil {
			return f.explain("installing the table", err)
		}
	}
	r.installed = f.written
	return f.openForwardChains()
}

// write makes the table anew, in one transaction, so that there is no moment without it.
func (f *firewall) write() error {
	guard, err := f.wantForwardGuard()
	if err != nil {
		return err
	}
	leases := f.rules.cfg.Leases.All()
	ends := map[string]bool{}
	for _, rec := range leases {
		ends[rec.Interface] = true
	}
	f.written = map[ownChain]int{}
	f.conn.AddTable(f.table) // first, so that deleting it cannot fail
	f.conn.DelTable(f.table)
	f.conn.AddTable(f.table)
	limit := f.rules.wantBound()
	if err := f.addOwnTable(leases, guard, limit); err != nil {
		return err
	}
	f.dropBridgeTable()
	if err := failpoint.Hit("network/firewall/install"); err != nil {
		return err
	}
	if err := f.conn.Flush(); err != nil {
		return err
	}
	f.rules.forwards, f.rules.elementsOf, f.rules.bound = guard, ends, limit
	return nil
}

// change adds elements to the own tables, or takes them away. Where the tables are not as they should be they are written
// anew; the ledger already says what is to be in them.
func (f *firewall) change(reqs []nlsock.Request) error {
	if len(reqs) == 0 || f.send(reqs) == nil {
		return nil
	}
	return f.install()
}

// send makes the transaction. What was verified before is so after it, if nobody else has changed anything meanwhile.
func (f *firewall) send(reqs []nlsock.Request) error {
	before, _ := f.rules.generation()
	if err := f.rules.elements.Batch(reqs...); err != nil {
		return err
	}
	if after, err := f.rules.generation(); err == nil && before == f.rules.verified && after == before+1 {
		f.rules.verified = after
	}
	return nil
}

// portRequests map the host ports of a sandbox, or with on false take them away.
func (f *firewall) portRequests(rec lease.Lease, on bool) (reqs []nlsock.Request) {
	for _, fam := range families {
		_ = f.sets(fam).each(portElements(fam, rec), func(set *nftables.Set, with []nftables.SetElement) error {
			reqs = append(reqs, ruleset.ElementRequests(set, with, on)...)
			return nil
		})
	}
	return reqs
}

// check says what is missing of the tables.
func (f *firewall) check() error {
	if err := f.checkChains(f.table); err != nil {
		return err
	}
	if err := f.checkPorts(); err != nil {
		return err
	}
	return f.checkSources()
}

// checkChains says what is missing of a table.
func (f *firewall) checkChains(table *nftables.Table) error {
	chains, err := f.conn.ListChainsOfTableFamily(table.Family)
	if err != nil {
		return f.explain("listing the chains", err)
	}
	have := map[string]*nftables.Chain{}
	for _, c := range chains {
		if c.Table.Name == table.Name {
			have[c.Name] = c
		}
	}
	if len(have) == 0 {
		return fmt.Errorf("network: the nftables table %q is not there (was the rule set flushed?): %w", table.Name, errdefs.ErrUnavailable)
	}
	want := 0
	for own, rules := range f.rules.installed {
		if own.family != table.Family {
			continue
		}
		want++
		c := have[own.name]
		if c == nil {
			return fmt.Errorf("network: the chain %q of the nftables table %q is not there: %w", own.name, table.Name, errdefs.ErrUnavailable)
		}
		found, err := f.rulesOf(c)
		if err != nil {
			return err
		}
		if len(found) != rules {
			return fmt.Errorf("network: the chain %q of the nftables table %q has %d rules, not %d (was the rule set flushed?): %w",
				own.name, table.Name, len(found), rules, errdefs.ErrUnavailable)
		}
	}
	if want == 0 {
		return fmt.Errorf("network: the nftables table %q is an earlier process's: %w", table.Name, errdefs.ErrUnavailable)
	}
	return nil
}

// admitted are the leases whose elements are to be in the tables: not of a sandbox that is only about to be connected, nor with
// ports of one that is prepared.
func (f *firewall) admitted(ports bool) (recs []lease.Lease) {
	for _, rec := range f.rules.cfg.Leases.All() {
		if mapped, known := f.rules.elementsOf[rec.Interface]; known && (mapped || !ports) {
			recs = append(recs, rec)
		}
	}
	return recs
}

// checkPorts says whether the sets hold as much as they should.
func (f *firewall) checkPorts() error {
	leases := f.admitted(true)
	for _, fam := range families {
		var want elements
		for _, rec := range leases {
			if !rec.Leaving {
				want.add(portElements(fam, rec))
			}
		}
		err := f.sets(fam).each(want, func(set *nftables.Set, with []nftables.SetElement) error {
			return f.checkElements(set, len(with))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// checkElements says whether a set holds as much as it should.
func (f *firewall) checkElements(set *nftables.Set, want int) error {
	have, err := f.conn.GetSetElements(set)
	if err != nil {
		return f.explain("listing the set "+set.Name, err)
	}
	if len(have) < want {
		return fmt.Errorf("network: %d of %d elements are missing in the nftables set %q %q: %w",
			want-len(have), want, set.Table.Name, set.Name, errdefs.ErrUnavailable)
	}
	return nil
}

// remove takes the tables and the marked rules away.
func (f *firewall) remove() error {
	if err := f.closeForwardChains(); err != nil {
		return err
	}
	f.conn.AddTable(f.table)
	f.conn.DelTable(f.table)
	f.dropBridgeTable()
	if err := f.conn.Flush(); err != nil {
		return f.explain("removing the table", err)
	}
	return nil
}

func (f *firewall) explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	var op *net.OpError
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.As(err, &op) && errors.Is(op.Err, unix.ENOENT) {
		return fmt.Errorf("network: nftables table %q: %s: %w; the kernel needs nf_tables, nft_chain_nat, nft_masq, nft_nat and nft_fib_inet (modprobe -a with these names): %w",
			f.table.Name, doing, err, errdefs.ErrFailedPrecondition)
	}
	return fmt.Errorf("network: nftables table %q: %s: %w", f.table.Name, doing, err)
}

// dropBridgeTable takes away what the version before had for the ports of the bridge: a table of the family of bridges. A kernel without that family has none.
func (f *firewall) dropBridgeTable() {
	tables, err := f.conn.ListTablesOfFamily(nftables.TableFamilyBridge)
	if err != nil {
		return
	}
	for _, t := range tables {
		if t.Name == f.table.Name {
			f.conn.DelTable(t)
		}
	}
}

// lacksMeans says whether a transaction has failed because the kernel does not have an expression of it.
func lacksMeans(err error) bool {
	var op *net.OpError
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) || errors.As(err, &op) && errors.Is(op.Err, unix.ENOENT)
}
