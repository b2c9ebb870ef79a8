package network

import (
	"errors"
	"fmt"
	"net"

	"github.com/containerd/errdefs"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
)

const postroutingChain = "postrouting"

// firewall is the nftables side of the network. The own table is always written as a whole, in one transaction:
//
//	table inet <bridge> {
//	    chain postrouting {
//	        type nat hook postrouting priority srcnat; policy accept;
//	        meta nfproto ipv4 ip saddr <range> oifname != "<bridge>" masquerade fully-random
//	    }
//	}
//
// An accept in a table of ours cannot save a packet from a chain elsewhere that drops by policy (as iptables-nft does
// on hosts with another container engine). So each such forward chain gets two rules at its head, marked by a comment.
type firewall struct {
	conn   *nftables.Conn
	bridge *Bridge
	table  *nftables.Table
}

func (b *Bridge) openFirewall() (*firewall, error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("network: nftables: %w", err)
	}
	return &firewall{conn: conn, bridge: b, table: &nftables.Table{Name: b.table, Family: nftables.TableFamilyINet}}, nil
}

// install writes the table and the marked rules.
func (f *firewall) install() error {
	// Added first, so that deleting it cannot fail; all in one transaction, so that there is no moment without it.
	f.conn.AddTable(f.table)
	f.conn.DelTable(f.table)
	f.conn.AddTable(f.table)
	accept := nftables.ChainPolicyAccept
	chain := f.conn.AddChain(&nftables.Chain{
		Name:     postroutingChain,
		Table:    f.table,
		Type:     nftables.ChainTypeNAT,
		Hooknum:  nftables.ChainHookPostrouting,
		Priority: nftables.ChainPriorityNATSource,
		Policy:   &accept,
	})
	f.conn.AddRule(&nftables.Rule{Table: f.table, Chain: chain, Exprs: f.masquerade()})
	if err := f.conn.Flush(); err != nil {
		return f.explain("installing the table", err)
	}
	return f.openForwardChains()
}

func (f *firewall) masquerade() []expr.Any {
	network := ipNet(f.bridge.prefix)
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.NFPROTO_IPV4}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 4}, // the source address
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: network.Mask, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: network.IP.To4()},
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: interfaceName(f.bridge.name)},
		&expr.Masq{FullyRandom: true},
	}
}

// interfaceName is a name as the kernel compares it: 16 bytes, filled with zeros.
func interfaceName(name string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, name)
	return b
}

// openForwardChains puts the marked rules into the foreign chains that need them.
func (f *firewall) openForwardChains() error {
	chains, err := f.chains()
	if err != nil {
		return err
	}
	for _, c := range chains {
		if !dropsForwarded(c) {
			continue
		}
		marked, err := f.marked(c)
		if err != nil {
			return err
		}
		if len(marked) == 2 {
			continue
		}
		for _, r := range marked {
			if err := f.conn.DelRule(r); err != nil {
				return f.explain("deleting a rule", err)
			}
		}
		for _, key := range []expr.MetaKey{expr.MetaKeyIIFNAME, expr.MetaKeyOIFNAME} {
			f.conn.InsertRule(&nftables.Rule{
				Table:    c.Table,
				Chain:    c,
				UserData: userdata.AppendString(nil, userdata.TypeComment, f.mark()),
				Exprs: []expr.Any{
					&expr.Meta{Key: key, Register: 1},
					&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: interfaceName(f.bridge.name)},
					&expr.Counter{},
					&expr.Verdict{Kind: expr.VerdictAccept},
				},
			})
		}
	}
	return f.explain("opening the forward chains", f.conn.Flush())
}

func (f *firewall) mark() string { return "monopod " + f.bridge.name }

// chains lists the IPv4 chains of the host that are not ours.
func (f *firewall) chains() ([]*nftables.Chain, error) {
	var out []*nftables.Chain
	for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyINet} {
		chains, err := f.conn.ListChainsOfTableFamily(family)
		if err != nil {
			return nil, f.explain("listing the chains", err)
		}
		for _, c := range chains {
			if c.Table.Name != f.table.Name || c.Table.Family != f.table.Family {
				out = append(out, c)
			}
		}
	}
	return out, nil
}

func dropsForwarded(c *nftables.Chain) bool {
	return c.Hooknum != nil && *c.Hooknum == *nftables.ChainHookForward && c.Type == nftables.ChainTypeFilter &&
		c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop
}

// marked returns the rules of a chain that carry our mark.
func (f *firewall) marked(c *nftables.Chain) ([]*nftables.Rule, error) {
	rules, err := f.conn.GetRules(c.Table, c)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil // gone since it was listed
	}
	if err != nil {
		return nil, f.explain("listing the rules of "+c.Table.Name+" "+c.Name, err)
	}
	var out []*nftables.Rule
	for _, r := range rules {
		if comment, ok := userdata.GetString(r.UserData, userdata.TypeComment); ok && comment == f.mark() {
			out = append(out, r)
		}
	}
	return out, nil
}

// check says what is missing of the table.
func (f *firewall) check() error {
	chains, err := f.conn.ListChainsOfTableFamily(f.table.Family)
	if err != nil {
		return f.explain("listing the chains", err)
	}
	for _, c := range chains {
		if c.Table.Name == f.table.Name && c.Name == postroutingChain {
			return nil
		}
	}
	return fmt.Errorf("network: the nftables table %q is not there (was the rule set flushed?); restart monopod to repair it: %w",
		f.table.Name, errdefs.ErrUnavailable)
}

// remove takes the table and the marked rules away.
func (f *firewall) remove() error {
	chains, err := f.chains()
	if err != nil {
		return err
	}
	for _, c := range chains {
		if c.Hooknum == nil || *c.Hooknum != *nftables.ChainHookForward {
			continue
		}
		marked, err := f.marked(c)
		if err != nil {
			return err
		}
		for _, r := range marked {
			if err := f.conn.DelRule(r); err != nil {
				return f.explain("deleting a rule", err)
			}
		}
	}
	f.conn.AddTable(f.table)
	f.conn.DelTable(f.table)
	return f.explain("removing the table", f.conn.Flush())
}

// othersNAT says whether somebody else on this host translates source addresses.
func (f *firewall) othersNAT() (bool, error) {
	chains, err := f.chains()
	if err != nil {
		return false, err
	}
	for _, c := range chains {
		if c.Type == nftables.ChainTypeNAT && c.Hooknum != nil && *c.Hooknum == *nftables.ChainHookPostrouting {
			return true, nil
		}
	}
	return false, nil
}

func (f *firewall) explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	var op *net.OpError
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.As(err, &op) && errors.Is(op.Err, unix.ENOENT) {
		return fmt.Errorf("network: nftables table %q: %s: %w; the kernel needs nf_tables, nft_masq and nft_chain_nat (modprobe nf_tables): %w",
			f.table.Name, doing, err, errdefs.ErrFailedPrecondition)
	}
	return fmt.Errorf("network: nftables table %q: %s: %w", f.table.Name, doing, err)
}
