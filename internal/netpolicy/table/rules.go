package table

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/netpolicy/compile"
)

// The chains.
const (
	forwardChain = "forward"
	outputChain  = "output"
)

var families = []family{
	{"4", unix.NFPROTO_IPV4, 4, 12, 16, nftables.TypeIPAddr, netip.IPv4Unspecified()},
	{"6", unix.NFPROTO_IPV6, 16, 8, 24, nftables.TypeIP6Addr, netip.IPv6Unspecified()},
}

// Registers of nftables that hold 4 bytes each. What maps give has words in front that say nothing (setSpec.blanks), and lies so that these are before the
// keys: nft 1.0.6 (Debian 12) takes what a map gives to have no length, and aborts when it lists a rule that reads it.
const (
	blankRegister   = unix.NFT_REG32_00
	pairRegister    = blankRegister + 1 // the class of the pod, and that of the peer
	peerRegister    = pairRegister + 1
	profileRegister = unix.NFT_REG32_04 // the profile, protocol and port, one further
	addressRegister = unix.NFT_REG32_08
)

// The types of the messages of ICMP (RFC 792) and of ICMPv6 (RFC 4861) that tell of a shorter way.
const redirect4, redirect6 = 5, 137

// writer puts rules into a transaction.
type writer struct {
	conn *nftables.Conn
	cfg  Config
	// rules counts those that were put into the transaction, by chain.
	rules map[string]int
}

func (w *writer) rule(c *nftables.Chain, parts ...[]expr.Any) {
	var all []expr.Any
	for _, p := range parts {
		all = append(all, p...)
	}
	w.conn.AddRule(&nftables.Rule{Table: c.Table, Chain: c, Exprs: all})
	w.rules[c.Name]++
}

func (w *writer) base(t *nftables.Table, name string, hook *nftables.ChainHook, priority nftables.ChainPriority) *nftables.Chain {
	accept := nftables.ChainPolicyAccept
	return w.conn.AddChain(&nftables.Chain{Name: name, Table: t, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: &priority, Policy: &accept})
}

// chains writes the rules. All that comes from pods and goes to pods the host forwards, but for what is between it and them.
func (w *writer) chains(t *nftables.Table) {
	for d := range compile.Directions {
		w.conn.AddChain(&nftables.Chain{Name: prefixes[d], Table: t})
		for _, fam := range families {
			w.judge(w.conn.AddChain(&nftables.Chain{Name: prefixes[d] + fam.name, Table: t}), d, fam)
		}
		chain := &nftables.Chain{Name: prefixes[d], Table: t}
		for _, fam := range families {
			w.rule(chain, meta(expr.MetaKeyNFPROTO, fam.proto), verdict(expr.VerdictGoto, prefixes[d]+fam.name))
		}
	}
	c := w.base(t, forwardChain, nftables.ChainHookForward, *nftables.ChainPriorityFilter)
	w.rule(c, replies(), verdict(expr.VerdictAccept))
	w.rule(c, bits(expr.CtKeySTATE, expr.CtStateBitRELATED), verdict(expr.VerdictAccept))
	const expected = 1 // IPS_EXPECTED
	w.rule(c, bits(expr.CtKeySTATUS, expected), verdict(expr.VerdictAccept))
	w.judged(c)

	// A host that forwards to where a packet came from tells the sender of the shorter way: here there is none.
	out := w.base(t, outputChain, nftables.ChainHookOutput, *nftables.ChainPriorityFilter)
	for _, to := range w.ports(expr.MetaKeyOIFGROUP) {
		w.rule(out, to, meta(expr.MetaKeyL4PROTO, unix.IPPROTO_ICMP), field(expr.PayloadBaseTransportHeader, 0, redirect4), verdict(expr.VerdictDrop))
		w.rule(out, to, meta(expr.MetaKeyL4PROTO, unix.IPPROTO_ICMPV6), field(expr.PayloadBaseTransportHeader, 0, redirect6), verdict(expr.VerdictDrop))
	}
}

// judged has a chain judge what comes from the interfaces of pods, and what goes to them.
func (w *writer) judged(c *nftables.Chain) {
	for _, from := range w.ports(expr.MetaKeyIIFGROUP) {
		w.rule(c, from, verdict(expr.VerdictJump, prefixes[compile.Egress]))
	}
	for _, to := range w.ports(expr.MetaKeyOIFGROUP) {
		w.rule(c, to, verdict(expr.VerdictJump, prefixes[compile.Ingress]))
	}
}

// judge writes the rules of one direction and family. A packet that is to pass goes back to where it came from; the last rule drops.
func (w *writer) judge(c *nftables.Chain, d int, fam family) {
	pod, peer := fam.dst, fam.src
	if compile.Direction(d) == compile.Egress {
		pod, peer = peer, pod
	}
	pass := verdict(expr.VerdictReturn)
	class := w.gives(podsSet(d, fam.any), fam, pod)
	w.rule(c, class, []expr.Any{&expr.Cmp{Op: expr.CmpOpEq, Register: pairRegister, Data: []byte(number(compile.Free))}}, pass)
	w.rule(c, fam.load(fam.src, addressRegister), fam.load(fam.dst, addressRegister+fam.size/4),
		[]expr.Any{&expr.Lookup{SourceRegister: addressRegister, SetName: selfSet(fam.any)}}, pass)
	for _, who := range [][]expr.Any{
		w.gives(peersSet(d, fam.any), fam, peer),
		w.gives(blocksSet(d, fam.any), fam, peer),
		{&expr.Immediate{Register: peerRegister, Data: []byte(number(compile.Anybody))}},
	} {
		w.rule(c, who, class, []expr.Any{&expr.Lookup{SourceRegister: pairRegister, SetName: openSet(d)}}, pass)
		w.rule(c, who, class, []expr.Any{
			&expr.Lookup{SourceRegister: pairRegister, DestRegister: profileRegister, IsDestRegSet: true, SetName: portedSet(d)},
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: profileRegister + 2},
			&expr.Payload{DestRegister: profileRegister + 3, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Lookup{SourceRegister: profileRegister + 1, SetName: portsSet},
		}, pass)
	}
	w.rule(c, []expr.Any{&expr.Counter{}}, verdict(expr.VerdictDrop))
}

// load has an address of the header in a register.
func (fam family) load(offset, register uint32) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: fam.size}}
}

// gives has what a map gives for an address: the class of a pod at its register, or that of a peer at its.
func (w *writer) gives(set string, fam family, offset uint32) []expr.Any {
	return append(fam.load(offset, addressRegister),
		&expr.Lookup{SourceRegister: addressRegister, DestRegister: blankRegister, IsDestRegSet: true, SetName: set})
}

// ports says that an interface is one of this node's pods: once for each of their networks, of which one holds.
func (w *writer) ports(key expr.MetaKey) (all [][]expr.Any) {
	for _, group := range w.cfg.Networks.PortGroups() {
		all = append(all, meta(key, binary.NativeEndian.AppendUint32(nil, group)...))
	}
	return all
}

func meta(key expr.MetaKey, value ...byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: value}}
}

func field(base expr.PayloadBase, offset uint32, value ...byte) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: base, Offset: offset, Len: uint32(len(value))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: value},
	}
}

// replies are packets against the direction in which their connection was begun.
func replies() []expr.Any {
	const reply = 1 // IP_CT_DIR_REPLY
	return []expr.Any{&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{reply}}}
}

// bits says that one of these is set of what connection tracking knows.
func bits(key expr.CtKey, mask uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: key, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binary.NativeEndian.AppendUint32(nil, mask), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}

func verdict(kind expr.VerdictKind, chain ...string) []expr.Any {
	v := &expr.Verdict{Kind: kind}
	if len(chain) > 0 {
		v.Chain = chain[0]
	}
	return []expr.Any{v}
}
