// Package rules is the network's firewall: who may send with which address, host ports, masquerading, bounds of connections, and what keeps pods from the
// host's loopback addresses. It is one table of nftables, written from the leases, and marked rules in chains of others.
package rules

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/nlsock"
	"monopod.dev/monopod/internal/network/lease"
)

// Rules is the nftables side of the network: the own table (table.go), and marked rules in chains of others (foreign.go). All methods are safe for concurrent use; one
// transaction is made at a time.
type Rules struct {
	cfg      Config
	site     site
	ct       *nlsock.Socket // for questions
	elements *nlsock.Socket // for what comes and goes with sandboxes

	mu         sync.Mutex // of one operation
	connection connection
	known      memory
}

// Open opens what reaches nftables of the network namespace of the calling thread, which is that of Config.NetNS. It changes nothing.
func Open(cfg Config) (*Rules, error) {
	r := &Rules{cfg: cfg, site: siteOf(cfg), connection: connection{netNS: cfg.NetNS, writes: cfg.Writes}, known: memory{elementsOf: map[string]bool{}}}
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
	r.connection.close()
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
		had, known := r.known.elementsOf[rec.Interface]
		if !known {
			reqs = append(reqs, f.sourceRequests(true, rec)...)
		}
		if err := f.change(reqs); err != nil {
			return err
		}
		r.known.elementsOf[rec.Interface] = had || ports
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
				delete(r.known.elementsOf, rec.Interface)
			}
			if !f.guards {
				return nil
			}
			// Added first, so that taking them away cannot fail.
			return f.send(append(f.sourceRequests(true, part...), f.sourceRequests(false, part...)...))
		})
		if err != nil {
			r.cfg.Log.Debug("the source guard keeps elements of sandboxes that are gone, until it is written anew", "error", err)
		}
	}
}

// do calls f, one call at a time.
func (r *Rules) do(f func(*firewall) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	fw, err := begin(r.site, &r.cfg, &r.connection, r.ct, r.elements, &r.known)
	if err != nil {
		return err
	}
	if err = f(fw); err != nil {
		r.connection.close()
	}
	return err
}

// Full are the addresses that are at their bound, and the bound; 0: there is none.
func (r *Rules) Full() (at []netip.Addr, bound uint32, err error) {
	err = r.do(func(f *firewall) (err error) {
		if bound = r.known.bound.connections; bound > 0 {
			at, err = f.full()
		}
		return err
	})
	return at, bound, err
}

// Warnings tells what this host cannot give its pods, in words for its operator.
func (r *Rules) Warnings() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known.unbounded == nil {
		return nil
	}
	return []string{boundMissing + ": " + r.known.unbounded.Error()}
}

// OthersForward says whether somebody else on this host translates source addresses, and so needs forwarding; with nodes also
// whether another node does.
func (r *Rules) OthersForward(nodes bool) (needed bool, err error) {
	err = r.do(func(f *firewall) (err error) {
		needed, err = f.foreign.forward(nodes)
		return err
	})
	return needed, err
}

// GuardOfAnotherNode says for which families another node of this host has switched forwarding on.
func (r *Rules) GuardOfAnotherNode() (g Families, err error) {
	err = r.do(func(f *firewall) (err error) {
		g, err = f.foreign.guardOfAnotherNode()
		return err
	})
	return g, err
}

// Share says that others forward packets on this host with this node's knowledge: from now on there is neither the forward guard nor that of the cluster's
// DNS. first tells that it was not said before.
func (r *Rules) Share() (first bool) { return !r.known.shared.Swap(true) }

// Renew writes the table anew where there is one, also of an earlier process.
func (r *Rules) Renew() error {
	return r.do(func(f *firewall) error {
		tables, err := f.conn.ListTablesOfFamily(f.table.Family)
		if err != nil {
			return f.explain("listing the tables", err)
		}
		if slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == f.table.Name }) {
			return f.install()
		}
		return nil
	})
}
