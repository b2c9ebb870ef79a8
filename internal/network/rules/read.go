package rules

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/nlsock"
)

// rulesOf lists the rules of a chain; one that is gone since it was listed has none.
func (f *firewall) rulesOf(c *nftables.Chain) ([]*nftables.Rule, error) {
	rules, err := f.conn.GetRules(c.Table, c)
	if err != nil {
		// Others may have rules that the library cannot read, such as those that ask for a connection's original direction.
		rules, err = f.plainRules(c)
	}
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return rules, f.explain("listing the rules of "+c.Table.Name+" "+c.Name, err)
}

// plainRules lists the rules of a chain as far as somebody needs to know who looks for his own, or for one that refuses all. Of other expressions it says only
// that they are there.
func (f *firewall) plainRules(c *nftables.Chain) (rules []*nftables.Rule, err error) {
	body := append([]byte{byte(c.Table.Family), 0, 0, 0}, nl.NewRtAttr(unix.NFTA_RULE_TABLE, nl.ZeroTerminated(c.Table.Name)).Serialize()...)
	body = append(body, nl.NewRtAttr(unix.NFTA_RULE_CHAIN, nl.ZeroTerminated(c.Name)).Serialize()...)
	q := nlsock.Request{What: "list the rules", Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETRULE, Flags: unix.NLM_F_DUMP, Body: body}
	err = f.rules.ct.Dump(q, func(body []byte) {
		if len(body) < sizeofNfgenmsg {
			return
		}
		if r := plainRule(body[sizeofNfgenmsg:]); r.Table.Name == c.Table.Name && r.Chain.Name == c.Name {
			r.Table, r.Chain = c.Table, c
			rules = append(rules, r)
		}
	})
	return rules, err
}

// plainRule reads a rule. It is pure.
func plainRule(body []byte) *nftables.Rule {
	r := &nftables.Rule{Table: &nftables.Table{}, Chain: &nftables.Chain{}}
	nlsock.EachAttr(body, func(attr uint16, data []byte) {
		switch attr {
		case unix.NFTA_RULE_TABLE:
			r.Table.Name = nl.BytesToString(data)
		case unix.NFTA_RULE_CHAIN:
			r.Chain.Name = nl.BytesToString(data)
		case unix.NFTA_RULE_HANDLE:
			if len(data) == 8 {
				r.Handle = binary.BigEndian.Uint64(data)
			}
		case unix.NFTA_RULE_USERDATA:
			r.UserData = slices.Clone(data)
		case unix.NFTA_RULE_EXPRESSIONS:
			nlsock.EachAttr(data, func(_ uint16, one []byte) { r.Exprs = append(r.Exprs, plainExpr(one)) })
		}
	})
	return r
}

// plainExpr reads an expression: those that refusesAll knows, and of all others only that they are one.
func plainExpr(b []byte) expr.Any {
	var name string
	var of []byte
	nlsock.EachAttr(b, func(attr uint16, data []byte) {
		switch attr {
		case unix.NFTA_EXPR_NAME:
			name = nl.BytesToString(data)
		case unix.NFTA_EXPR_DATA:
			of = data
		}
	})
	switch name {
	case "counter":
		return &expr.Counter{}
	case "log":
		return &expr.Log{}
	case "reject":
		return &expr.Reject{}
	case "target":
		t := &expr.Target{}
		nlsock.EachAttr(of, func(attr uint16, data []byte) {
			if attr == unix.NFTA_TARGET_NAME {
				t.Name = nl.BytesToString(data)
			}
		})
		return t
	case "immediate":
		if kind, ok := verdictOf(of); ok {
			return &expr.Verdict{Kind: kind}
		}
	}
	return &expr.Meta{}
}

// verdictOf is what an immediate expression says about a packet, if it says that.
func verdictOf(b []byte) (kind expr.VerdictKind, ok bool) {
	nlsock.EachAttr(b, func(attr uint16, data []byte) {
		if attr != unix.NFTA_IMMEDIATE_DATA {
			return
		}
		nlsock.EachAttr(data, func(attr uint16, data []byte) {
			if attr != unix.NFTA_DATA_VERDICT {
				return
			}
			nlsock.EachAttr(data, func(attr uint16, data []byte) {
				if attr == unix.NFTA_VERDICT_CODE && len(data) == 4 {
					kind, ok = expr.VerdictKind(int32(binary.BigEndian.Uint32(data))), true
				}
			})
		})
	})
	return kind, ok
}
