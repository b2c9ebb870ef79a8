package network

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/ruleset"
)

// The source guard lets out of a sandbox's port only what bears the sandbox's own addresses:
//
//	table bridge <bridge> {
//	    set from4 { type ifname . ether_addr . ipv4_addr }   # port, hardware address and address that belong together
//	    set from6 { type ifname . ether_addr . ipv6_addr }   # ... and the link-local address of that hardware address
//	    chain ports {
//	        type filter hook prerouting priority dstnat;     # before anything is learnt, forwarded or translated
//	        meta iifgroup <group of leaving ports> drop
//	        meta iifgroup != <group of the ports> accept     # of other bridges
//	        ether type ip iifname . ether saddr . ip saddr @from4 accept
//	        ether type arp jump arp
//	        ether type ip6 jump ip6
//	        counter drop
//	    }
//	    chain arp { ... }  chain ip6 { ... }  chain neighbours { ... }
//	}
//
// The ports are known by their interface group, which they have from their making: one whose elements are not there yet, or
// not any more, lets nothing out. A sandbox costs a few elements and no rule, a frame one look into a hash table (ARP and
// neighbour discovery two or three). Frames with a VLAN tag and other protocols than IPv4, ARP and IPv6 are dropped: inside a
// tag, or an encapsulation that a receiver takes off, the addresses would not be looked at.
//
// What the bridge learns from a frame without showing it to netfilter (LLDP) is nothing: learning is off at the ports, and
// each has a fixed entry of its hardware address in the bridge's table.
const (
	portsChain      = "ports"
	arpChain        = "arp"
	ip6Chain        = "ip6"
	neighboursChain = "neighbours"
)

// leavingGroup is the interface group of ports that are about to be deleted, whichever bridge of this host they are of.
const leavingGroup = 0x6d706f64

// bridgeGroup is the interface group of the bridges themselves, of all nodes of a host.
const bridgeGroup = 0x6d706272

// PortGroup is the interface group of a bridge's ports.
func PortGroup(bridge string) uint32 {
	sum := sha256.Sum256([]byte("ports of " + bridge))
	group := 0x6d000000 | binary.BigEndian.Uint32(sum[:])>>8
	if group == leavingGroup || group == bridgeGroup {
		group++
	}
	return group
}

// sourceFamily is what the guard has for a family of addresses.
type sourceFamily struct {
	set  string
	typ  nftables.SetDatatype
	size int
	id   uint32
}

var (
	sources4 = sourceFamily{"from4", nftables.TypeIPAddr, 4, 1}
	sources6 = sourceFamily{"from6", nftables.TypeIP6Addr, 16, 2}
)

// sourceElements say what a sandbox may bear. It is pure.
func sourceElements(fam sourceFamily, rec lease) (out []nftables.SetElement) {
	mac := macOf(rec.Addresses[0].Address.Addr())
	add := func(ip netip.Addr) {
		if ip.BitLen() != fam.size*8 {
			return
		}
		key := append(interfaceName(rec.Interface), mac...)
		out = append(out, nftables.SetElement{Key: append(append(key, 0, 0), ip.AsSlice()...)})
	}
	for _, a := range rec.Addresses {
		add(a.Address.Addr())
	}
	add(linkLocalOf(mac))
	return out
}

// linkLocalOf is the link-local address that a hardware address has (RFC 4291, appendix A).
func linkLocalOf(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
}

func (f *firewall) sourceTable() *nftables.Table {
	return &nftables.Table{Name: f.bridge.table, Family: f.bridge.bridgeFamily}
}

func (f *firewall) sources(fam sourceFamily) *nftables.Set {
	return &nftables.Set{Table: f.sourceTable(), ID: fam.id, Name: fam.set,
		KeyType: nftables.MustConcatSetType(nftables.TypeIFName, nftables.TypeEtherAddr, fam.typ)}
}

// sourceRequests let the sandboxes' frames out of their ports, or with on false do not any more.
func (f *firewall) sourceRequests(on bool, recs ...lease) (reqs []request) {
	if !f.guards() {
		return nil
	}
	for _, fam := range []sourceFamily{sources4, sources6} {
		var all []nftables.SetElement
		for _, rec := range recs {
			all = append(all, sourceElements(fam, rec)...)
		}
		reqs = append(reqs, ruleset.ElementRequests(f.sources(fam), all, on)...)
	}
	return reqs
}

// guards says whether there is a source guard.
func (f *firewall) guards() bool { return !f.bridge.cfg.NoSourceGuard && f.bridge.unguarded == nil }

// addSourceTable puts the guard into the transaction, or with NoSourceGuard takes away what there is of it.
func (f *firewall) addSourceTable(leases map[string]lease) error {
	table := f.conn.AddTable(f.sourceTable())
	f.conn.DelTable(table)
	if f.bridge.cfg.NoSourceGuard {
		return nil
	}
	f.conn.AddTable(table)
	for _, fam := range []sourceFamily{sources4, sources6} {
		set := f.sources(fam)
		if err := f.conn.AddSet(set, nil); err != nil {
			return fmt.Errorf("network: nftables set: %w", err)
		}
		var all []nftables.SetElement
		for _, rec := range leases {
			// One that leaves may have its interface still. It is kept in its bounds until that is gone.
			all = append(all, sourceElements(fam, rec)...)
		}
		for part := range slices.Chunk(all, elementsInMessage) {
			if err := f.conn.SetAddElements(set, part); err != nil {
				return fmt.Errorf("network: nftables set: %w", err)
			}
		}
	}
	accept := nftables.ChainPolicyAccept
	chain := func(name string) *nftables.Chain { return f.conn.AddChain(&nftables.Chain{Name: name, Table: table}) }
	arp, ip6, neighbours := chain(arpChain), chain(ip6Chain), chain(neighboursChain)
	ports := f.conn.AddChain(&nftables.Chain{Name: portsChain, Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRef(*nftables.ChainPriorityNATDest - 200), Policy: &accept})
	f.portRules(ports)
	f.arpRules(arp)
	f.ip6Rules(ip6)
	f.neighbourRules(neighbours)
	return nil
}

// Places in frames: EtherType and source of Ethernet (IEEE 802.3), those of ARP (RFC 826), IPv6 (RFC 8200) and ICMPv6 (RFC
// 4443, 4861, 3810).
var (
	etherType   = field{expr.PayloadBaseLLHeader, 12, 2}
	etherSource = field{expr.PayloadBaseLLHeader, 6, 6}
	ip4Source   = field{expr.PayloadBaseNetworkHeader, 12, 4}
	ip6Source   = field{expr.PayloadBaseNetworkHeader, 8, 16}
	ip6Length   = field{expr.PayloadBaseNetworkHeader, 4, 2}
	ip6Next     = field{expr.PayloadBaseNetworkHeader, 6, 1}

	arpFormat       = field{expr.PayloadBaseNetworkHeader, 0, 6} // hardware and protocol, and the lengths of their addresses
	arpOperation    = field{expr.PayloadBaseNetworkHeader, 6, 2}
	arpSenderMAC    = field{expr.PayloadBaseNetworkHeader, 8, 6}
	arpSender       = field{expr.PayloadBaseNetworkHeader, 14, 4}
	arpTarget       = field{expr.PayloadBaseNetworkHeader, 24, 4}
	icmp6Type       = field{expr.PayloadBaseTransportHeader, 0, 1}
	neighbourTarget = field{expr.PayloadBaseTransportHeader, 8, 16}
)

// field is a place in a frame.
type field struct {
	base         expr.PayloadBase
	offset, size uint32
}

func (p field) load(register uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: p.base, Offset: p.offset, Len: p.size}
}

func (p field) cmp(op expr.CmpOp, value ...byte) []expr.Any {
	return []expr.Any{p.load(1), &expr.Cmp{Op: op, Register: 1, Data: value}}
}

func (p field) is(value ...byte) []expr.Any { return p.cmp(expr.CmpOpEq, value...) }

// own says that hardware address and address are a pair that belongs to the port.
func (f *firewall) own(fam sourceFamily, mac, ip field) []expr.Any {
	const name, hardware, address = keyRegister, keyRegister + 4, keyRegister + 6
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: name},
		mac.load(hardware),
		ip.load(address),
		&expr.Lookup{SourceRegister: keyRegister, SetName: fam.set, SetID: fam.id},
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

// group compares the interface group of a packet's interface, by MetaKeyIIFGROUP or MetaKeyOIFGROUP.
func group(key expr.MetaKey, op expr.CmpOp, group uint32) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: key, Register: 1},
		&expr.Cmp{Op: op, Register: 1, Data: binary.NativeEndian.AppendUint32(nil, group)},
	}
}

func (f *firewall) portRules(c *nftables.Chain) {
	f.rule(c, group(expr.MetaKeyIIFGROUP, expr.CmpOpEq, leavingGroup), verdict(expr.VerdictDrop))
	f.rule(c, group(expr.MetaKeyIIFGROUP, expr.CmpOpNeq, PortGroup(f.bridge.name)), verdict(expr.VerdictAccept))
	f.rule(c, etherType.is(0x08, 0x00), f.own(sources4, etherSource, ip4Source), verdict(expr.VerdictAccept))
	f.rule(c, etherType.is(0x08, 0x06), verdict(expr.VerdictJump, arpChain))
	f.rule(c, etherType.is(0x86, 0xdd), verdict(expr.VerdictJump, ip6Chain))
	f.rule(c, refused())
}

// arpRules: the sender is the sandbox, in the frame's header and in ARP's. One that has not taken its address yet may ask
// whether somebody has it (RFC 5227): then the target is the sandbox's.
func (f *firewall) arpRules(c *nftables.Chain) {
	f.rule(c, arpFormat.cmp(expr.CmpOpNeq, 0, 1, 0x08, 0x00, 6, 4), refused())
	f.rule(c, f.own(sources4, etherSource, arpSender), f.own(sources4, arpSenderMAC, arpSender), verdict(expr.VerdictAccept))
	f.rule(c, arpOperation.is(0, 1), arpSender.is(0, 0, 0, 0),
		f.own(sources4, etherSource, arpTarget), f.own(sources4, arpSenderMAC, arpTarget), verdict(expr.VerdictAccept))
	f.rule(c, refused())
}

// ip6Rules: the source is the sandbox's. Without a source a host may report the multicast groups that it listens to, as it
// does before it has a link-local address, and ask for duplicates (neighbourRules).
func (f *firewall) ip6Rules(c *nftables.Chain) {
	const firstNeighbour, lastNeighbour = 133, 137
	icmp := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_ICMPV6}},
	}
	f.rule(c, icmp, icmp6Type.cmp(expr.CmpOpGte, firstNeighbour), icmp6Type.cmp(expr.CmpOpLte, lastNeighbour), verdict(expr.VerdictJump, neighboursChain))
	f.rule(c, f.own(sources6, etherSource, ip6Source), verdict(expr.VerdictAccept))
	for _, report := range []byte{131, 132, 143} {
		f.rule(c, icmp, ip6Source.is(make([]byte, 16)...), icmp6Type.is(report), verdict(expr.VerdictAccept))
	}
	f.rule(c, refused())
}

// neighbourRules: neighbour discovery in the forms that hosts send, with no option or with a single one, the hardware
// address, and without extension headers: so no other option hides behind it. Router advertisements and redirects (134, 137)
// are a router's to send.
func (f *firewall) neighbourRules(c *nftables.Chain) {
	const routerSolicitation, solicitation, advertisement = 133, 135, 136
	const sourceOption, targetOption = 1, 2
	f.rule(c, ip6Next.cmp(expr.CmpOpNeq, unix.IPPROTO_ICMPV6), refused())
	// Is anybody a router, or does anybody have the address that I want?
	none := ip6Source.is(make([]byte, 16)...)
	f.rule(c, none, icmp6Type.is(routerSolicitation), ip6Length.is(0, 8), verdict(expr.VerdictAccept))
	f.rule(c, none, icmp6Type.is(solicitation), f.own(sources6, etherSource, neighbourTarget), verdict(expr.VerdictAccept))
	for _, m := range []struct {
		typ, option byte
		length      uint32 // without options
		target      bool   // it speaks of its target, else of its source
	}{{routerSolicitation, sourceOption, 8, false}, {solicitation, sourceOption, 24, false}, {advertisement, targetOption, 24, true}} {
		of := ip6Source
		var target []expr.Any
		if m.target {
			of, target = neighbourTarget, f.own(sources6, etherSource, neighbourTarget)
		}
		source := f.own(sources6, etherSource, ip6Source)
		option := field{expr.PayloadBaseTransportHeader, m.length, 2}
		hardware := field{expr.PayloadBaseTransportHeader, m.length + 2, 6}
		f.rule(c, icmp6Type.is(m.typ), ip6Length.is(0, byte(m.length)), source, target, verdict(expr.VerdictAccept))
		f.rule(c, icmp6Type.is(m.typ), ip6Length.is(0, byte(m.length)+8), source, target,
			option.is(m.option, 1), f.own(sources6, hardware, of), verdict(expr.VerdictAccept))
	}
	f.rule(c, refused())
}

// checkSources says whether the guard is there, for all sandboxes.
func (f *firewall) checkSources() error {
	if !f.guards() {
		return nil
	}
	if err := f.checkChains(f.sourceTable()); err != nil {
		return err
	}
	leases := f.admitted(false)
	for _, fam := range []sourceFamily{sources4, sources6} {
		want := 0
		for _, rec := range leases {
			want += len(sourceElements(fam, rec))
		}
		if err := f.checkElements(f.sources(fam), want); err != nil {
			return err
		}
	}
	return nil
}

// noBridgeFamily says whether a transaction has failed because the kernel has no nftables for bridges.
func noBridgeFamily(err error) bool {
	var op *net.OpError
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EPROTONOSUPPORT) ||
		errors.Is(err, unix.ENOENT) || errors.As(err, &op) && errors.Is(op.Err, unix.ENOENT)
}
