package rules

import (
	"encoding/binary"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/nlsock"
)

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
