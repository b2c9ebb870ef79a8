package rules

import (
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// A segment of TCP that connection tracking takes for invalid (one far outside of the window, an answer to nothing) is not translated: it would leave with a pod's own
// address, or come to a port of the host at which nobody listens. Who gets it knows no such connection, says so, and by that resets the good one that it was
// about. So it is dropped:
//
//	chain invalid-in  { type filter hook prerouting priority mangle;  meta l4proto != tcp accept;  ct state & invalid == 0 accept;  iifgroup <ports> drop
//	                    fib daddr type local  meta l4proto . ip daddr . th dport map @at4 -> drop;  ... any4, at6, any6 -> drop }
//	chain invalid-out { type filter hook postrouting priority mangle;  meta l4proto != tcp accept;  ct state & invalid != 0  oifgroup <ports> drop }
//
// Connections that the host has not seen from their beginning are none of these. What others forward is not looked at.
const (
	invalidInChain  = "invalid-in"
	invalidOutChain = "invalid-out"
)

func (s *shape) dropInvalid(in, out *nftables.Chain) {
	drop := verdict(expr.VerdictDrop)
	for _, c := range []*nftables.Chain{in, out} {
		s.rule(c, []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{unix.IPPROTO_TCP}}}, verdict(expr.VerdictAccept))
	}
	s.rule(in, isInvalid(expr.CmpOpEq), verdict(expr.VerdictAccept))
	s.rule(in, s.fromPods(expr.CmpOpEq), drop)
	for _, fam := range families {
		sets := s.sets(fam)
		s.rule(in, fam.isFamily(), isLocal(), fam.portKey(fam.dst), found(sets.at), drop)
		s.rule(in, fam.isFamily(), isLocal(), fam.portKey(0), found(sets.any), drop)
	}
	s.rule(out, isInvalid(expr.CmpOpNeq), s.toPods(expr.CmpOpEq), drop)
}
