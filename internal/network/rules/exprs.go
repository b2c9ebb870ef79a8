package rules

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/network/lease"
	"monopod.dev/monopod/internal/network/podnet"
)

// Parts of rules, as package nftables has them.

// Registers of nftables that hold 4 bytes each. Keys are laid out from the first, what a map gives is in the second.
const (
	keyRegister  = unix.NFT_REG32_00
	dataRegister = unix.NFT_REG32_08
)

// family is what differs between IPv4 and IPv6 in the table.
type family struct {
	proto    byte   // NFPROTO
	size     uint32 // of an address
	src, dst uint32 // where the header has them
	at, any  string // maps
	to       string // set
	typ      nftables.SetDatatype
	loopback netip.Prefix
}

var families = []family{
	{unix.NFPROTO_IPV4, 4, 12, 16, "at4", "any4", "to4", nftables.TypeIPAddr, netip.MustParsePrefix("127.0.0.0/8")},
	{unix.NFPROTO_IPV6, 16, 8, 24, "at6", "any6", "to6", nftables.TypeIP6Addr, netip.MustParsePrefix("::1/128")},
}

func (fam family) isFamily() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{fam.proto}},
	}
}

// isLocal says that the destination is an address of the host.
func isLocal() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	}
}

// match compares the address at this place of the header with a range.
func match(offset uint32, r netip.Prefix) []expr.Any {
	mask := net.CIDRMask(r.Bits(), r.Addr().BitLen())
	size := uint32(len(mask))
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: size, Mask: mask, Xor: make([]byte, size)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: r.Masked().Addr().AsSlice()},
	}
}

// wasTranslated says that the connection's destination was translated (IPS_DST_NAT of linux/netfilter).
func wasTranslated() []expr.Any {
	const dstNAT = 1 << 5
	return ctBit(expr.CtKeySTATUS, dstNAT, expr.CmpOpNeq)
}

// group compares the interface group of a packet's interface, by MetaKeyIIFGROUP or MetaKeyOIFGROUP.
func group(key expr.MetaKey, op expr.CmpOp, group uint32) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: key, Register: 1},
		&expr.Cmp{Op: op, Register: 1, Data: binary.NativeEndian.AppendUint32(nil, group)},
	}
}

// groupOfNode says that an interface is a node's, or with CmpOpNeq that it is none's.
func groupOfNode(key expr.MetaKey, op expr.CmpOp) []expr.Any {
	native := func(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }
	return []expr.Any{
		&expr.Meta{Key: key, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: native(podnet.GroupOfNodesMask), Xor: make([]byte, 4)},
		&expr.Cmp{Op: op, Register: 1, Data: native(podnet.GroupOfNodes)},
	}
}

func verdict(kind expr.VerdictKind, chain ...string) []expr.Any {
	v := &expr.Verdict{Kind: kind}
	if len(chain) > 0 {
		v.Chain = chain[0]
	}
	return []expr.Any{v}
}

// refused ends a chain.
func refused() []expr.Any {
	return []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}}
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

func destination(fam family, address []byte) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: fam.dst, Len: fam.size},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: address},
	}
}

// hostEnd says that an interface is the host's end of a sandbox's, by the beginning of its name. In tables of iptables-nft only what iptables has a word for may stand (-i mp+), or it
// refuses to work with them: it has none for groups.
func hostEnd(key expr.MetaKey) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: key, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte(lease.HostInterfacePrefix)},
	}
}

// interfaceName is a name as the kernel compares it: 16 bytes, filled with zeros.
func interfaceName(name string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, name)
	return b
}
