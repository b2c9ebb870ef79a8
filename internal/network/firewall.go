package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"github.com/containerd/errdefs"
	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/failpoint"
	"monopod.dev/monopod/internal/host/nlsock"
	"monopod.dev/monopod/internal/host/ruleset"
)

// firewall is the nftables side of the network: the own table (table.go and what it names), and marked rules in chains of others
// (foreign.go).
//
// A value serves one operation, with the bridge's firewall lock held.
type firewall struct {
	conn   *nftables.Conn
	bridge *Bridge
	table  *nftables.Table
	// written counts the rules that were put into the transaction.
	written map[ownChain]int
}

// ownChain is a chain of the own tables.
type ownChain struct {
	family nftables.TableFamily
	name   string
}

// withFirewall calls f, one call at a time.
//
// The connection lasts: to close one makes the kernel wait until nobody uses what was deleted over it, some 10 ms. After an
// error it is replaced, for answers to a failed transaction may be in it.
func (b *Bridge) withFirewall(f func(*firewall) error) error {
	b.firewallMu.Lock()
	defer b.firewallMu.Unlock()
	fw := &firewall{bridge: b, table: &nftables.Table{Name: b.table, Family: nftables.TableFamilyINet}}
	if err := fw.connect(); err != nil {
		return err
	}
	err := f(fw)
	if err != nil {
		b.closeFirewall()
	}
	return err
}

// connect takes the bridge's connection, or makes one.
func (f *firewall) connect() (err error) {
	if f.bridge.nft == nil {
		if f.bridge.nft, err = nftables.New(nftables.WithNetNSFd(int(f.bridge.hostNS)), nftables.AsLasting(), nftables.WithSockOptions(f.bridge.prepareSocket)); err != nil {
			return fmt.Errorf("network: nftables: %w", err)
		}
	}
	f.conn = f.bridge.nft
	return nil
}

// prepareSocket makes room for answers: the kernel answers each rule of a transaction before the first answer is read. And it
// tells the watcher whose transactions are this node's own.
func (b *Bridge) prepareSocket(c *netlink.Conn) error {
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			if name, err := unix.Getsockname(int(fd)); err == nil {
				b.watcher.SetWriter(name.(*unix.SockaddrNetlink).Pid)
			}
		})
	}
	return errors.Join(err, c.SetReadBuffer(4<<20))
}

// closeFirewall is called with the firewall's lock held.
func (b *Bridge) closeFirewall() {
	if b.nft != nil {
		_ = b.nft.CloseLasting() // nothing is lost with it
		b.nft = nil
	}
}

// sizeofNfgenmsg is that of struct nfgenmsg, which begins the messages of netfilter.
const sizeofNfgenmsg = 4

// generation is the number of the last transaction that anybody has made with nftables on this host.
func (b *Bridge) generation() (gen uint32, err error) {
	const attrID = 1 // NFTA_GEN_ID
	q := request{What: "read the generation of nftables", Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Body: make([]byte, sizeofNfgenmsg)}
	err = b.ct.Dump(q, func(body []byte) {
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
	gen, err := f.bridge.generation()
	if err != nil {
		return f.explain("reading the generation", err)
	}
	if limit := f.bridge.wantBound(); f.bridge.bound != limit && f.bridge.installed != nil {
		f.bridge.log.Info("the room for connections of this host has changed", "connectionsPerPod", limit.connections, "before", f.bridge.bound.connections)
		return f.install()
	}
	if gen != 0 && gen == f.bridge.verified {
		return nil
	}
	if err := f.check(); err != nil {
		return err
	}
	want, err := f.wantForwardGuard()
	if err != nil {
		return err
	}
	if want != f.bridge.forwards {
		f.bridge.log.Info("the host's other networks", "forwardGuard", want.any(), "before", f.bridge.forwards.any())
		return f.install()
	}
	if err := f.openForwardChains(); err != nil {
		return err
	}
	f.bridge.verified = gen // before what has just been added, which is looked at once more, then
	return nil
}

// install writes the table, with the elements of all sandboxes, and the marked rules. Bounds of connections are left out where the kernel has no means for them.
func (f *firewall) install() error {
	b := f.bridge
	unbounded := b.unbounded
	b.unbounded = nil
	err := f.write()
	if lacksMeans(err) {
		b.unbounded = err
		b.closeFirewall()
		if err := f.connect(); err != nil {
			return err
		}
		err = f.write()
	}
	if err != nil {
		return f.explain("installing the table", err)
	}
	if b.unbounded != nil && unbounded == nil {
		b.log.Warn(boundMissing, "error", b.unbounded)
	}
	if b.bound != b.wantBound() {
		// Before the first rule that asks connection tracking the kernel did not tell how much room there is.
		if err := f.write(); err != nil {
			return f.explain("installing the table", err)
		}
	}
	b.installed = f.written
	return f.openForwardChains()
}

// write makes the table anew, in one transaction, so that there is no moment without it.
func (f *firewall) write() error {
	guard, err := f.wantForwardGuard()
	if err != nil {
		return err
	}
	leases := f.bridge.ledger.all()
	ends := map[string]bool{}
	for _, rec := range leases {
		ends[rec.Interface] = true
	}
	f.written = map[ownChain]int{}
	f.conn.AddTable(f.table) // first, so that deleting it cannot fail
	f.conn.DelTable(f.table)
	f.conn.AddTable(f.table)
	limit := f.bridge.wantBound()
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
	f.bridge.forwards, f.bridge.elementsOf, f.bridge.bound = guard, ends, limit
	return nil
}

// change adds elements to the own tables, or takes them away. Where the tables are not as they should be they are written
// anew; the ledger already says what is to be in them.
func (f *firewall) change(reqs []request) error {
	if len(reqs) == 0 || f.send(reqs) == nil {
		return nil
	}
	return f.install()
}

// send makes the transaction. What was verified before is so after it, if nobody else has changed anything meanwhile.
func (f *firewall) send(reqs []request) error {
	before, _ := f.bridge.generation()
	if err := f.bridge.elements.Batch(reqs...); err != nil {
		return err
	}
	if after, err := f.bridge.generation(); err == nil && before == f.bridge.verified && after == before+1 {
		f.bridge.verified = after
	}
	return nil
}

// portRequests map the host ports of a sandbox, or with on false take them away.
func (f *firewall) portRequests(rec lease, on bool) (reqs []request) {
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
	for own, rules := range f.bridge.installed {
		if own.family != table.Family {
			continue
		}
		want++
		c := have[own.name]
		if c == nil {
			return fmt.Errorf("network: the chain %q of the nftables table %q is not there: %w", own.name, table.Name, errdefs.ErrUnavailable)
		}
		found, err := f.rules(c)
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
func (f *firewall) admitted(ports bool) (recs []lease) {
	for _, rec := range f.bridge.ledger.all() {
		if mapped, known := f.bridge.elementsOf[rec.Interface]; known && (mapped || !ports) {
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
