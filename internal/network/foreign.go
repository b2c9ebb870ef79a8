package network

import (
	"errors"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
)

// openForwardChains puts the marked rules into the foreign chains that need them.
func (f *firewall) openForwardChains() error {
	chains, err := f.chains()
	if err != nil {
		return err
	}
	for _, c := range chains {
		drops, err := f.dropsForwarded(c)
		if err != nil {
			return err
		}
		if !drops {
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

// chains lists the chains of the host's IPv4 and IPv6 that are not ours.
func (f *firewall) chains() ([]*nftables.Chain, error) {
	var out []*nftables.Chain
	for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6, nftables.TableFamilyINet} {
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

// dropsForwarded says whether packets that a chain does not know end in it: by its policy, or by a last rule that drops or
// rejects all that is left (firewalld).
func (f *firewall) dropsForwarded(c *nftables.Chain) (bool, error) {
	if c.Hooknum == nil || *c.Hooknum != *nftables.ChainHookForward || c.Type != nftables.ChainTypeFilter {
		return false, nil
	}
	if c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop {
		return true, nil
	}
	rules, err := f.rules(c)
	return err == nil && len(rules) > 0 && refusesAll(rules[len(rules)-1].Exprs), err
}

// refusesAll says whether a rule drops or rejects every packet that comes to it. It is pure.
func refusesAll(exprs []expr.Any) bool {
	for _, e := range exprs {
		switch e := e.(type) {
		case *expr.Counter, *expr.Log:
		case *expr.Reject:
			return true
		case *expr.Verdict:
			return e.Kind == expr.VerdictDrop
		default:
			return false
		}
	}
	return false
}

// rules lists the rules of a chain; one that is gone since it was listed has none.
func (f *firewall) rules(c *nftables.Chain) ([]*nftables.Rule, error) {
	rules, err := f.conn.GetRules(c.Table, c)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return rules, f.explain("listing the rules of "+c.Table.Name+" "+c.Name, err)
}

// marked returns the rules of a chain that carry our mark.
func (f *firewall) marked(c *nftables.Chain) ([]*nftables.Rule, error) {
	rules, err := f.rules(c)
	if err != nil {
		return nil, err
	}
	var out []*nftables.Rule
	for _, r := range rules {
		if comment, ok := userdata.GetString(r.UserData, userdata.TypeComment); ok && comment == f.mark() {
			out = append(out, r)
		}
	}
	return out, nil
}

// closeForwardChains takes the marked rules away, wherever they are.
func (f *firewall) closeForwardChains() error {
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
	return f.explain("closing the forward chains", f.conn.Flush())
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

// interfaceName is a name as the kernel compares it: 16 bytes, filled with zeros.
func interfaceName(name string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, name)
	return b
}
