package rules

import (
	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
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

func (f *firewall) dropInvalid(in, out *nftables.Chain) {
	drop := verdict(expr.VerdictDrop)
	for _, c := range []*nftables.Chain{in, out} {
		f.rule(c, []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{unix.IPPROTO_TCP}}}, verdict(expr.VerdictAccept))
	}
	f.rule(in, isInvalid(expr.CmpOpEq), verdict(expr.VerdictAccept))
	f.rule(in, f.fromPods(expr.CmpOpEq), drop)
	for _, fam := range families {
		s := f.sets(fam)
		f.rule(in, fam.isFamily(), isLocal(), fam.portKey(fam.dst), found(s.at), drop)
		f.rule(in, fam.isFamily(), isLocal(), fam.portKey(0), found(s.any), drop)
	}
	f.rule(out, isInvalid(expr.CmpOpNeq), f.toPods(expr.CmpOpEq), drop)
}

// isInvalid compares whether connection tracking takes a packet for invalid (NF_CT_STATE_INVALID_BIT) with nothing.
func isInvalid(op expr.CmpOp) []expr.Any { return ctBit(expr.CtKeySTATE, 1, op) }

// ctBit compares a bit of what connection tracking knows of a packet with 0; of a packet that it does not know of nothing holds.
func ctBit(key expr.CtKey, bit uint32, op expr.CmpOp) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: key, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(bit), Xor: make([]byte, 4)},
		&expr.Cmp{Op: op, Register: 1, Data: make([]byte, 4)},
	}
}

// found looks a key up in a map, and says no more than whether it is there.
func found(set *nftables.Set) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: keyRegister, DestRegister: dataRegister, IsDestRegSet: true, SetName: set.Name, SetID: set.ID}}
}
