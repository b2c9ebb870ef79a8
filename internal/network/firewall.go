package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"github.com/containerd/errdefs"
	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// firewall is the nftables side of the network: the own table (see table.go), and marked rules in chains of others.
//
// An accept in a table of ours cannot save a packet from a chain elsewhere that drops by policy (as iptables-nft does
// on hosts with another container engine). So each such forward chain gets two rules at its head, marked by a comment.
//
// A value serves one operation, with the bridge's firewall lock held.
type firewall struct {
	conn   *nftables.Conn
	bridge *Bridge
	table  *nftables.Table
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
		if f.bridge.nft, err = nftables.New(nftables.WithNetNSFd(int(f.bridge.hostNS)), nftables.AsLasting()); err != nil {
			return fmt.Errorf("network: nftables: %w", err)
		}
	}
	f.conn = f.bridge.nft
	return nil
}

// closeFirewall is called with the firewall's lock held.
func (b *Bridge) closeFirewall() {
	if b.nft != nil {
		_ = b.nft.CloseLasting() // nothing is lost with it
		b.nft = nil
	}
}

// generation is the number of the last transaction that anybody has made with nftables on this host.
func (b *Bridge) generation() (gen uint32, err error) {
	const attrID = 1 // NFTA_GEN_ID
	q := request{what: "read the generation of nftables", typ: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, body: make([]byte, sizeofNfgenmsg)}
	err = b.ct.dump(q, func(body []byte) {
		if len(body) < sizeofNfgenmsg {
			return
		}
		eachAttr(body[sizeofNfgenmsg:], func(typ uint16, data []byte) {
			if typ == attrID && len(data) == 4 {
				gen = binary.BigEndian.Uint32(data)
			}
		})
	})
	return gen, err
}

// verify looks whether the own table and the marked rules are as they should be, unless nobody has changed anything since it
// did the last time. What is missing in foreign chains it adds.
func (f *firewall) verify() error {
	gen, err := f.bridge.generation()
	if err != nil {
		return f.explain("reading the generation", err)
	}
	if gen != 0 && gen == f.bridge.verified {
		return nil
	}
	if err := f.check(); err != nil {
		return err
	}
	if err := f.openForwardChains(); err != nil {
		return err
	}
	f.bridge.verified = gen // before what has just been added, which is looked at once more, then
	return nil
}

// flush makes the transaction. What was verified before is so after it, if nobody else has changed anything meanwhile.
func (f *firewall) flush() error {
	before, _ := f.bridge.generation()
	if err := f.conn.Flush(); err != nil {
		return err
	}
	if after, err := f.bridge.generation(); err == nil && before == f.bridge.verified && after == before+1 {
		f.bridge.verified = after
	}
	return nil
}

// install writes the table, with the host ports of all sandboxes, and the marked rules.
func (f *firewall) install() error {
	// Added first, so that deleting it cannot fail; all in one transaction, so that there is no moment without it.
	f.conn.AddTable(f.table)
	f.conn.DelTable(f.table)
	f.conn.AddTable(f.table)
	if err := f.addOwnTable(); err != nil {
		return err
	}
	if err := f.conn.Flush(); err != nil {
		return f.explain("installing the table", err)
	}
	return f.openForwardChains()
}

// setPorts maps the host ports of a sandbox, or with on false takes them away. Where the table is not as it should be it
// is written anew; the ledger already says what is to be in it.
func (f *firewall) setPorts(rec lease, on bool) error {
	for _, fam := range families {
		err := f.sets(fam).each(portElements(fam, rec), func(set *nftables.Set, with []nftables.SetElement) error {
			switch {
			case len(with) == 0:
				return nil
			case on:
				return f.conn.SetAddElements(set, with)
			}
			return f.conn.SetDeleteElements(set, with)
		})
		if err != nil {
			return fmt.Errorf("network: nftables set: %w", err)
		}
	}
	if f.flush() == nil {
		return nil
	}
	f.bridge.closeFirewall()
	if err := f.connect(); err != nil {
		return err
	}
	return f.install()
}

// check says what is missing of the table.
func (f *firewall) check() error {
	chains, err := f.conn.ListChainsOfTableFamily(f.table.Family)
	if err != nil {
		return f.explain("listing the chains", err)
	}
	have := map[string]*nftables.Chain{}
	for _, c := range chains {
		if c.Table.Name == f.table.Name {
			have[c.Name] = c
		}
	}
	if len(have) == 0 {
		return fmt.Errorf("network: the nftables table %q is not there (was the rule set flushed?): %w", f.table.Name, errdefs.ErrUnavailable)
	}
	for _, name := range []string{hostportsChain, preroutingChain, outputChain, postroutingChain, guardChain} {
		c := have[name]
		if c == nil {
			return fmt.Errorf("network: the chain %q of the nftables table %q is not there: %w", name, f.table.Name, errdefs.ErrUnavailable)
		}
		rules, err := f.rules(c)
		if err != nil {
			return err
		}
		if len(rules) == 0 {
			return fmt.Errorf("network: the chain %q of the nftables table %q is empty (was the rule set flushed?): %w", name, f.table.Name, errdefs.ErrUnavailable)
		}
	}
	return f.checkPorts()
}

// checkPorts says whether the sets hold as much as they should.
func (f *firewall) checkPorts() error {
	leases := f.bridge.ledger.all()
	for _, fam := range families {
		var want elements
		for _, rec := range leases {
			if !rec.Leaving {
				want.add(portElements(fam, rec))
			}
		}
		err := f.sets(fam).each(want, func(set *nftables.Set, with []nftables.SetElement) error {
			have, err := f.conn.GetSetElements(set)
			if err != nil {
				return f.explain("listing the set "+set.Name, err)
			}
			if len(have) < len(with) {
				return fmt.Errorf("network: %d of %d host ports are missing in the nftables set %q %q: %w",
					len(with)-len(have), len(with), f.table.Name, set.Name, errdefs.ErrUnavailable)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// remove takes the table and the marked rules away.
func (f *firewall) remove() error {
	if err := f.closeForwardChains(); err != nil {
		return err
	}
	f.conn.AddTable(f.table)
	f.conn.DelTable(f.table)
	return f.explain("removing the table", f.conn.Flush())
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
