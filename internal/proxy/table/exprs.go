package table

import (
	"bytes"
	"net/netip"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/network/podnet"
)

func verdict(kind expr.VerdictKind) []expr.Any { return []expr.Any{&expr.Verdict{Kind: kind}} }

func to(kind expr.VerdictKind, chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: kind, Chain: chain}}
}

// is compares what is one byte.
func is(key expr.MetaKey, value byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{value}}}
}

func (f family) isFamily() []expr.Any { return is(expr.MetaKeyNFPROTO, f.proto) }

func isGroup(key expr.MetaKey, group uint32) []expr.Any {
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: native(group)}}
}

// fromNodes is podnet.OfNodes for the interface that a packet comes by.
func fromNodes() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFGROUP, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: native(podnet.GroupOfNodesMask), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: native(podnet.GroupOfNodes)},
	}
}

func localType(op expr.CmpOp) expr.Any {
	return &expr.Cmp{Op: op, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)}
}

// isLocal says that the destination is an address of the host, or not.
func isLocal(yes bool) []expr.Any {
	op := expr.CmpOpEq
	if !yes {
		op = expr.CmpOpNeq
	}
	return []expr.Any{&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true}, localType(op)}
}

func load(register, offset, size uint32) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size}}
}

// front loads protocol, address and port of destination, as the sets have them.
func (f family) front(address uint32) []expr.Any {
	return append([]expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: keyRegister}},
		&expr.Payload{DestRegister: keyRegister + 1, Base: expr.PayloadBaseNetworkHeader, Offset: address, Len: f.size},
		&expr.Payload{DestRegister: keyRegister + 1 + f.size/4, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2})
}

// nodePort is front for a port of the node.
func (f family) nodePort() []expr.Any {
	return append(append([]expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: keyRegister}}, f.nowhere()...),
		&expr.Payload{DestRegister: keyRegister + 1 + f.size/4, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2})
}

// nowhere is the address of node ports in a key.
func (f family) nowhere() []expr.Any {
	return []expr.Any{&expr.Immediate{Register: keyRegister + 1, Data: make([]byte, f.size)}}
}

// original is front as the connection's first packet had it, at originalRegister. The kernel's word for the address of either family has no length in the eyes
// of nft 1.0.6, which aborts where it is a part of a key (see keyRegister). So it is loaded behind what is in the first register, any, and all of that copied:
// what is behind the first register of a copy is nothing to nft.
func (f family) original() []expr.Any {
	load := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: keyRegister},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: keyRegister + 1},
		&expr.Ct{Key: expr.CtKeyDST, Register: keyRegister + 2}, // it may fill 16 bytes, so that the port comes after it
		&expr.Ct{Key: expr.CtKeyPROTODST, Register: keyRegister + 2 + f.size/4},
	}
	return append(load, copied(keyRegister, originalRegister-1, 3+f.size/4)...)
}

// copied copies so many registers, up to four at once.
func copied(from, to, n uint32) (all []expr.Any) {
	for at := uint32(0); at < n; at += 4 {
		size := 4 * min(4, n-at)
		all = append(all, &expr.Bitwise{SourceRegister: from + at, DestRegister: to + at, Len: size, Mask: bytes.Repeat([]byte{0xff}, int(size)), Xor: make([]byte, size)})
	}
	return all
}

func (f family) originalNodePort() []expr.Any {
	return append(append([]expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: keyRegister}}, f.nowhere()...),
		&expr.Ct{Key: expr.CtKeyPROTODST, Register: keyRegister + 1 + f.size/4})
}

func lookup(set string, key, value uint32) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: key, DestRegister: value, IsDestRegSet: true, SetName: set}}
}

// in says that a key is in a set, or with not that it is not.
func in(set string, key uint32, not bool) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: key, SetName: set, Invert: not}}
}

// goes finds a front's way in a map, and goes it.
func (f family) goes(services, ways string) []expr.Any {
	return append(lookup(services+f.suffix, keyRegister, foundRegister), lookup(ways+f.suffix, wayRegister, unix.NFT_REG_VERDICT)...)
}

// translated compares whether the connection's destination was translated (IPS_DST_NAT of linux/netfilter) with nothing.
func translated(op expr.CmpOp) []expr.Any {
	const dstNAT = 1 << 5
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATUS, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: native(dstNAT), Xor: make([]byte, 4)},
		&expr.Cmp{Op: op, Register: 1, Data: make([]byte, 4)},
	}
}

// isInvalid compares whether connection tracking takes a packet for invalid (NF_CT_STATE_INVALID_BIT) with nothing.
func isInvalid(op expr.CmpOp) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: native(1), Xor: make([]byte, 4)},
		&expr.Cmp{Op: op, Register: 1, Data: make([]byte, 4)},
	}
}

// match compares the address at this place of the header with a range.
func (f family) match(offset uint32, r netip.Prefix) []expr.Any {
	mask := make([]byte, f.size)
	for i := range r.Bits() {
		mask[i/8] |= 1 << (7 - i%8)
	}
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: f.size},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: f.size, Mask: mask, Xor: make([]byte, f.size)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: r.Masked().Addr().AsSlice()},
	}
}
