package rules

import (
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/google/nftables"

	"monopod.dev/monopod/internal/host/nlsock"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// memory is what is known of the host from one operation to the next.
type memory struct {
	chains atomic.Pointer[map[chainName]bool] // where others' rules for forwarded packets are, as last found
	shared atomic.Bool                        // others forward packets, with this node's knowledge

	// Of the operation that holds the lock.
	verified   uint32          // the generation of the rule set when it was last found as it should be; 0: never
	installed  map[string]int  // how many rules this process has written, by chain; nil: none yet
	elementsOf map[string]bool // whose elements are written, by the host's end; true: its host ports, too
	forwards   Families        // of the forward guard, as it was written
	opened     []netip.Prefix  // the ranges that the marked rules in others' chains are of; nil: not known
	bound      bound           // as it was written
	unbounded  error           // why connections of sandboxes are not bounded though they should be
}

// firewall is one operation: it makes the table as it is wanted, and looks whether it is.
type firewall struct {
	reader
	foreign    foreign
	cfg        *Config
	elements   *nlsock.Socket // for what comes and goes with sandboxes
	connection *connection
	known      *memory
}

// begin begins an operation.
func begin(at site, cfg *Config, c *connection, ct, elements *nlsock.Socket, known *memory) (*firewall, error) {
	conn, err := c.open()
	if err != nil {
		return nil, err
	}
	f := &firewall{cfg: cfg, elements: elements, connection: c, known: known}
	f.by(at, conn, ct)
	return f, nil
}

// by has it work by this connection.
func (f *firewall) by(at site, conn *nftables.Conn, ct *nlsock.Socket) {
	f.reader = reader{site: at, conn: conn, ct: ct}
	f.foreign = foreign{reader: f.reader, links: f.cfg.Links, never: f.cfg.NoForeignRules}
}

// verify looks whether the own tables and the marked rules are as they should be, unless nobody has changed anything since it
// did the last time. What is missing in foreign chains it adds, and it follows others who begin or cease to need forwarding.
func (f *firewall) verify() error {
	gen, err := f.generation()
	if err != nil {
		return f.explain("reading the generation", err)
	}
	if limit := f.wantBound(); f.known.bound != limit && f.known.installed != nil {
		f.cfg.Log.Info("the room for connections of this host has changed", "connectionsPerPod", limit.connections, "before", f.known.bound.connections)
		return f.install()
	}
	if gen != 0 && gen == f.known.verified {
		return nil
	}
	if err := f.check(); err != nil {
		return err
	}
	want, err := f.wantForwardGuard()
	if err != nil {
		return err
	}
	if want != f.known.forwards {
		f.cfg.Log.Info("the host's other networks", "Families", want.Any(), "before", f.known.forwards.Any())
		return f.install()
	}
	if err := f.openForeign(); err != nil {
		return err
	}
	f.known.verified = gen // before what has just been added, which is looked at once more, then
	return nil
}

// install writes the table, with the elements of all sandboxes, and the marked rules. Bounds of connections are left out where the kernel has no means for them.
func (f *firewall) install() error {
	known := f.known
	unbounded := known.unbounded
	known.unbounded = nil
	err := f.write()
	if lacksMeans(err) {
		known.unbounded = err
		f.connection.close()
		conn, err2 := f.connection.open()
		if err2 != nil {
			return err2
		}
		f.by(f.site, conn, f.ct)
		err = f.write()
	}
	if err != nil {
		return f.explain("installing the table", err)
	}
	if known.unbounded != nil && unbounded == nil {
		f.cfg.Log.Warn(boundMissing, "error", known.unbounded)
	}
	if known.bound != f.wantBound() {
		// Before the first rule that asks connection tracking the kernel did not tell how much room there is.
		if err := f.write(); err != nil {
			return f.explain("installing the table", err)
		}
	}
	return f.openForeign()
}

// write makes the table anew, in one transaction, so that there is no moment without it.
func (f *firewall) write() error {
	guard, err := f.wantForwardGuard()
	if err != nil {
		return err
	}
	leases := f.cfg.Leases.All()
	ends := map[string]bool{}
	for _, rec := range leases {
		ends[rec.Interface] = true
	}
	f.conn.AddTable(f.table) // first, so that deleting it cannot fail
	f.conn.DelTable(f.table)
	f.conn.AddTable(f.table)
	limit := f.wantBound()
	s := shapeOf(f.site, wanted{leases: leases, ranges: f.cfg.Leases.UsedRanges(), forwards: guard, limit: limit, shared: f.known.shared.Load()})
	if err := s.into(f.conn); err != nil {
		return err
	}
	f.dropBridgeTable()
	if err := failpoint.Hit("network/firewall/install"); err != nil {
		return err
	}
	if err := f.conn.Flush(); err != nil {
		return err
	}
	f.known.forwards, f.known.elementsOf, f.known.bound, f.known.installed = guard, ends, limit, s.rules
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
	before, _ := f.generation()
	if err := f.elements.Batch(reqs...); err != nil {
		return err
	}
	if after, err := f.generation(); err == nil && before == f.known.verified && after == before+1 {
		f.known.verified = after
	}
	return nil
}

// openForeign has the marked rules be where they should, and takes down which chains matter.
func (f *firewall) openForeign() error {
	ranges := f.cfg.Leases.UsedRanges()
	known, err := f.foreign.open(ranges, !slices.Equal(ranges, f.known.opened))
	if err != nil {
		return err
	}
	f.known.chains.Store(&known)
	f.known.opened = ranges
	return nil
}

// wantBound is the bound that is to be.
func (f *firewall) wantBound() bound {
	if f.known.unbounded != nil {
		return bound{}
	}
	return boundOf(f.cfg.ConnectionsPerPod, room())
}

// wantForwardGuard decides it by what was written down when forwarding was switched on.
func (f *firewall) wantForwardGuard() (Families, error) {
	g, err := f.cfg.SwitchedOn()
	if err != nil || !g.Any() || f.cfg.NoForwardGuard || f.known.shared.Load() {
		return Families{}, err
	}
	needed, err := f.foreign.forward(false)
	if err != nil || needed {
		return Families{}, err
	}
	return g, nil
}

// remove takes the tables and the marked rules away.
func (f *firewall) remove() error {
	if err := f.foreign.close(); err != nil {
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
