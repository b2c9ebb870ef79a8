package table

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/network/podnet"
)

// The chains, in the words of nft. <ports> are the host's ends of this node's pods by their interface group, <nodes> those of all nodes of the host:
//
//	chain prerouting  {
//	    type nat hook prerouting priority dstnat + 5;
//	    iifgroup <ports> goto incoming;  iifgroup & <mask> == <nodes> accept;  goto incoming
//	}
//	chain incoming    {
//	    meta l4proto . ip daddr . th dport @limited4  meta l4proto . ip daddr . th dport . ip saddr != @allowed4  drop
//	    iifgroup <ports> goto inside;  ip saddr <range of pods> goto inside;  goto outside
//	}
//	chain output      { type nat hook output priority dstnat + 5;  goto outgoing }
//	chain outgoing    { ... @limited4 ...; goto inside }
//	chain outside     { meta l4proto . ip daddr . th dport map @outside4 -> way vmap @outways4;  ip daddr @guarded4 goto inside
//	                    fib daddr type local  meta l4proto . 0.0.0.0 . th dport map @outside4 -> way vmap @outways4;  goto inside }
//	chain inside      { ... map @services4 -> way vmap @ways4;  ip daddr @guarded4 goto refuse-all;  ip daddr @own4 goto refuse-elsewhere;  fib daddr type local ... }
//	chain one-of-3-4  { meta l4proto . ip daddr . th dport map @services4 . numgen random mod 3 map @endpoints4 -> dnat;  ...;  drop }
//	chain postrouting {
//	    type nat hook postrouting priority srcnat - 5;
//	    ct status & dnat == 0 accept
//	    ip saddr . ip daddr @hairpin4 masquerade
//	    oifgroup <ports> accept;  fib saddr type local accept
//	    meta l4proto . ct original ip daddr . ct original proto-dst map @services4 -> flags & 1 != 0  masquerade;  ...
//	}
//
// They are nat chains, which see the first packet of a connection only. Host ports and what others translate at dstnat come first. What refuses is in them, too:
// it says so before anybody else's chain can keep it from being said. Where there are guarded addresses, what is for one comes before host ports:
//
//	chain guarded-prerouting { type nat hook prerouting priority dstnat - 5;  ip daddr @guarded4 goto incoming }
//	chain guarded-output     { type nat hook output priority dstnat - 5;  ip daddr @guarded4 goto outgoing }
//
// What connection tracking takes for invalid is not translated. For the host, or a machine behind it, it would come from nowhere: who says so (RST) resets a good
// connection. So what is for a service, and invalid, is dropped; what pods send is by the network's own table, where they are on ports of this node:
//
//	chain invalid-prerouting { type filter hook prerouting priority mangle;  ct state & invalid == 0 accept;  goto invalid }
//	chain invalid-output     { type filter hook output priority mangle;  ct state & invalid == 0 accept;  goto invalid }
//	chain invalid            { meta l4proto . ip daddr . th dport map @services4 -> drop;  fib daddr type local  meta l4proto . 0.0.0.0 . th dport map @services4 -> drop }
//	chain invalid-forward    { type filter hook forward priority mangle;  ct state invalid drop }      # without ports, as kube-proxy does
//
// What goes to a pod of this node is not masqueraded: its answer comes back by this host, which routes all that pods send. Only a pod that would be sent its own
// address gets another one: any that the host has, for the interface by which it comes and goes has none.
const (
	preroutingChain  = "prerouting"
	outputChain      = "output"
	postroutingChain = "postrouting"
	incomingChain    = "incoming"
	outgoingChain    = "outgoing"
	insideChain      = "inside"
	outsideChain     = "outside"
	refuseChain      = "refuse"
	refuseElseChain  = "refuse-elsewhere"
	refuseAllChain   = "refuse-all"
	silenceChain     = "silence"
	invalidChain     = "invalid"
	guardedPrefix    = "guarded-"
	versionPrefix    = "version-"
)

// Registers of nftables that hold 4 bytes each: a key of services from the first; what it has from 6 on: a word that says nothing, flags, way and list. What is
// looked up for a list lies right behind it, an endpoint to go to right before 6.
//
// Nothing reads the register into which a map was asked to write, but translation does: nft 1.0.6 (Debian 12) takes what is there to have no length, and aborts
// when it lists such a rule, with whatever else the host has.
const (
	keyRegister      = unix.NFT_REG32_00
	foundRegister    = unix.NFT_REG32_06
	flagsRegister    = unix.NFT_REG32_07
	wayRegister      = unix.NFT_REG32_08
	listRegister     = unix.NFT_REG32_09
	behindRegister   = unix.NFT_REG32_11 // which endpoint, or the client, or an endpoint
	originalRegister = unix.NFT_REG32_09 // the front of the first packet of a connection
	dynsetUpdate     = unix.NFT_DYNSET_OP_UPDATE
	dynsetDelete     = 2 // NFT_DYNSET_OP_DELETE
	affinityMost     = 1 << 17
	rejectICMPX      = 2 // NFT_REJECT_ICMPX_UNREACH
	icmpxPort        = 1 // NFT_REJECT_ICMPX_PORT_UNREACH
	rejectTCPReset   = unix.NFT_REJECT_TCP_RST
)

func (f family) endpointRegister() uint32 { return foundRegister - 1 - f.size/4 }

// rule is a rule that is to be.
type rule struct {
	chain string
	exprs []expr.Any
}

// chain is a chain that is to be. Without a hook packets come to it from other chains.
type chain struct {
	name     string
	typ      nftables.ChainType
	hook     *nftables.ChainHook
	priority nftables.ChainPriority
}

// shape is all that does not come and go with services.
type shape struct {
	chains []chain
	rules  []rule
}

// site says where on the host it works. It is what a shape follows from.
type site struct {
	// networks are none where others connect pods.
	networks podnet.Networks
	// ranges are of pods of this node.
	ranges []netip.Prefix
	// guards: there may be guarded addresses.
	guards bool
}

// ported says whether interfaces of this node connect its pods.
func (p site) ported() bool { return len(p.networks) > 0 }

func (s *shape) base(name string, typ nftables.ChainType, hook *nftables.ChainHook, priority int32) {
	s.chains = append(s.chains, chain{name, typ, hook, nftables.ChainPriority(priority)})
}

func (s *shape) plain(names ...string) {
	for _, n := range names {
		s.chains = append(s.chains, chain{name: n})
	}
}

func (s *shape) rule(chain string, parts ...[]expr.Any) {
	var exprs []expr.Any
	for _, p := range parts {
		exprs = append(exprs, p...)
	}
	s.rules = append(s.rules, rule{chain, exprs})
}

// shapeOf is the shape for a site. It is pure.
func shapeOf(p site) *shape {
	s := &shape{}
	destination, source := int32(*nftables.ChainPriorityNATDest), int32(*nftables.ChainPriorityNATSource)
	s.plain(refuseChain, refuseElseChain, silenceChain, insideChain, outsideChain, incomingChain, outgoingChain)
	s.base(preroutingChain, nftables.ChainTypeNAT, nftables.ChainHookPrerouting, destination+5)
	s.base(outputChain, nftables.ChainTypeNAT, nftables.ChainHookOutput, destination+5)
	s.base(postroutingChain, nftables.ChainTypeNAT, nftables.ChainHookPostrouting, source-5)

	s.rule(refuseChain, is(expr.MetaKeyL4PROTO, unix.IPPROTO_TCP), []expr.Any{&expr.Reject{Type: rejectTCPReset}})
	s.rule(refuseChain, []expr.Any{&expr.Reject{Type: rejectICMPX, Code: icmpxPort}})
	s.rule(refuseElseChain, isLocal(true), verdict(expr.VerdictAccept))
	s.rule(refuseElseChain, to(expr.VerdictGoto, refuseChain))
	s.rule(silenceChain, verdict(expr.VerdictDrop))

	for _, c := range []string{incomingChain, outgoingChain} {
		for _, f := range families {
			s.rule(c, f.isFamily(), f.front(f.dst), in("limited"+f.suffix, keyRegister, false),
				load(keyRegister+2+f.size/4, f.src, f.size), in("allowed"+f.suffix, keyRegister, true), verdict(expr.VerdictDrop))
		}
	}
	for _, group := range p.networks.PortGroups() {
		s.rule(preroutingChain, isGroup(expr.MetaKeyIIFGROUP, group), to(expr.VerdictGoto, incomingChain))
		s.rule(incomingChain, isGroup(expr.MetaKeyIIFGROUP, group), to(expr.VerdictGoto, insideChain))
	}
	if p.ported() { // pods of other nodes have their own services
		s.rule(preroutingChain, fromNodes(), verdict(expr.VerdictAccept))
	}
	for _, r := range p.ranges {
		f := families[familyOf(r.Addr())]
		s.rule(incomingChain, f.isFamily(), f.match(f.src, r), to(expr.VerdictGoto, insideChain))
	}
	s.rule(preroutingChain, to(expr.VerdictGoto, incomingChain))
	s.rule(outputChain, to(expr.VerdictGoto, outgoingChain))
	s.rule(incomingChain, to(expr.VerdictGoto, outsideChain))
	s.rule(outgoingChain, to(expr.VerdictGoto, insideChain))

	for _, f := range families {
		s.rule(outsideChain, f.isFamily(), f.front(f.dst), f.goes("outside", "outways"))
		s.rule(insideChain, f.isFamily(), f.front(f.dst), f.goes("services", "ways"))
	}
	if p.guards {
		s.guard()
	}
	for _, f := range families {
		s.rule(insideChain, f.isFamily(), load(keyRegister, f.dst, f.size), in("own"+f.suffix, keyRegister, false), to(expr.VerdictGoto, refuseElseChain))
	}
	for _, f := range families {
		s.rule(outsideChain, f.isFamily(), isLocal(true), f.nodePort(), f.goes("outside", "outways"))
		s.rule(insideChain, f.isFamily(), isLocal(true), f.nodePort(), f.goes("services", "ways"))
	}
	s.rule(outsideChain, to(expr.VerdictGoto, insideChain))
	s.postrouting(p)
	s.invalid(p)
	s.version()
	return s
}

// invalid drops what belongs to no connection, of what is for services.
func (s *shape) invalid(p site) {
	const mangle = -150 // after connection tracking
	s.plain(invalidChain)
	hooked := func(of string, hook *nftables.ChainHook) {
		s.base(invalidChain+"-"+of, nftables.ChainTypeFilter, hook, mangle)
		s.rule(invalidChain+"-"+of, isInvalid(expr.CmpOpEq), verdict(expr.VerdictAccept))
		s.rule(invalidChain+"-"+of, to(expr.VerdictGoto, invalidChain))
	}
	hooked(preroutingChain, nftables.ChainHookPrerouting)
	hooked(outputChain, nftables.ChainHookOutput)
	for _, f := range families {
		found := lookup("services"+f.suffix, keyRegister, foundRegister)
		s.rule(invalidChain, f.isFamily(), f.front(f.dst), found, verdict(expr.VerdictDrop))
		s.rule(invalidChain, f.isFamily(), isLocal(true), f.nodePort(), found, verdict(expr.VerdictDrop))
	}
	if !p.ported() {
		s.base(invalidChain+"-forward", nftables.ChainTypeFilter, nftables.ChainHookForward, mangle)
		s.rule(invalidChain+"-forward", isInvalid(expr.CmpOpNeq), verdict(expr.VerdictDrop))
	}
}

// guard has whoever connects to a guarded address reach a service, or nothing.
func (s *shape) guard() {
	destination := int32(*nftables.ChainPriorityNATDest)
	s.plain(refuseAllChain)
	// What says no to the host itself comes back to the address, and is no connection.
	const reply = 1 // IP_CT_DIR_REPLY
	s.rule(refuseAllChain, []expr.Any{&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{reply}}}, verdict(expr.VerdictAccept))
	for _, protocol := range []byte{unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6} {
		s.rule(refuseAllChain, is(expr.MetaKeyL4PROTO, protocol), verdict(expr.VerdictAccept))
	}
	s.rule(refuseAllChain, to(expr.VerdictGoto, refuseChain))
	early := func(of string, hook *nftables.ChainHook, next string) {
		s.base(guardedPrefix+of, nftables.ChainTypeNAT, hook, destination-5)
		for _, f := range families {
			s.rule(guardedPrefix+of, f.isGuarded(), to(expr.VerdictGoto, next))
		}
	}
	early(preroutingChain, nftables.ChainHookPrerouting, incomingChain)
	early(outputChain, nftables.ChainHookOutput, outgoingChain)
	for _, f := range families {
		s.rule(outsideChain, f.isGuarded(), to(expr.VerdictGoto, insideChain))
		s.rule(insideChain, f.isGuarded(), to(expr.VerdictGoto, refuseAllChain))
	}
}

func (f family) isGuarded() []expr.Any {
	return append(append(f.isFamily(), load(keyRegister, f.dst, f.size)...), in("guarded"+f.suffix, keyRegister, false)...)
}

func (s *shape) postrouting(p site) {
	masquerade := []expr.Any{&expr.Masq{}}
	s.rule(postroutingChain, translated(expr.CmpOpEq), verdict(expr.VerdictAccept))
	for _, f := range families {
		s.rule(postroutingChain, f.isFamily(), load(keyRegister, f.src, f.size), load(keyRegister+f.size/4, f.dst, f.size),
			in("hairpin"+f.suffix, keyRegister, false), masquerade)
	}
	for _, group := range p.networks.PortGroups() {
		s.rule(postroutingChain, isGroup(expr.MetaKeyOIFGROUP, group), verdict(expr.VerdictAccept))
	}
	s.rule(postroutingChain, []expr.Any{&expr.Fib{Register: 1, FlagSADDR: true, ResultADDRTYPE: true}, localType(expr.CmpOpEq)}, verdict(expr.VerdictAccept))
	for _, f := range families {
		found := func(key uint32) []expr.Any { return lookup("services"+f.suffix, key, foundRegister) }
		flagged := []expr.Any{
			&expr.Bitwise{SourceRegister: flagsRegister, DestRegister: flagsRegister, Len: 4, Mask: native(flagMasquerade), Xor: make([]byte, 4)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: flagsRegister, Data: make([]byte, 4)},
		}
		s.rule(postroutingChain, f.isFamily(), f.original(), found(originalRegister), flagged, masquerade)
		s.rule(postroutingChain, f.isFamily(), f.original(), found(originalRegister), verdict(expr.VerdictAccept))
		s.rule(postroutingChain, f.isFamily(), f.originalNodePort(), found(keyRegister), flagged, masquerade)
	}
}

// version adds a chain whose name says what all the others are: who finds it need not look at each rule.
func (s *shape) version() {
	h := sha256.New()
	s.spell(h)
	name := versionPrefix + hex.EncodeToString(h.Sum(nil)[:6])
	s.plain(name)
	s.rule(name, verdict(expr.VerdictReturn))
}

// spell writes all of the shape, in the same words in every process: a pointer would be another one in the next, which would make everything anew then,
// and forget who has had which endpoint.
func (s *shape) spell(w io.Writer) {
	for _, c := range s.chains {
		fmt.Fprintf(w, "%d %s %s %d\n", nftables.TableFamilyINet, c.name, c.typ, c.priority)
		if c.hook != nil {
			fmt.Fprintf(w, "at %d\n", *c.hook)
		}
	}
	for _, r := range s.rules {
		fmt.Fprintf(w, "%d %s\n", nftables.TableFamilyINet, r.chain)
		for _, e := range r.exprs {
			fmt.Fprintf(w, "%T %+v\n", e, e)
		}
	}
}

// waySet is the map by which connections find the chain of their way.
func (n names) waySet(id setID) *nftables.Set {
	name := "ways"
	if id.kind == outside {
		name = "outways"
	}
	return &nftables.Set{Table: n.own, Name: name + families[id.family].suffix, ID: 101 + uint32(id.kind)*2 + uint32(id.family),
		IsMap: true, KeyType: nftables.TypeMark, DataType: nftables.TypeVerdict}
}

// affinitySet is where it is remembered which endpoint a client has had.
func (n names) affinitySet(f uint8) *nftables.Set {
	fam := families[f]
	return &nftables.Set{Table: n.own, Name: "affinity" + fam.suffix, ID: 201 + uint32(f), IsMap: true, Dynamic: true, HasTimeout: true, Size: affinityMost,
		KeyType:  nftables.MustConcatSetType(nftables.TypeMark, nftables.TypeMark, fam.typ),
		DataType: nftables.MustConcatSetType(fam.typ, nftables.TypeInetService)}
}

// chainOf is the chain of a way.
func chainOf(k wayKey) string {
	switch k.way {
	case refuse:
		return refuseChain
	case refuseElse:
		return refuseElseChain
	case silence:
		return silenceChain
	}
	from := insideChain
	if k.set.kind == outside {
		from = outsideChain
	}
	return from + "-" + k.way.name() + "-ipv" + families[k.set.family].suffix
}

func rulesOf(k wayKey) [][]expr.Any {
	from := "services"
	if k.set.kind == outside {
		from = "outside"
	}
	return families[k.set.family].wayRules(k.way, from)
}

// wayRules are those of the chain of a way, for connections that are looked up in this map. Each rule finds the service anew: what a rule has in its
// registers the next one may not read.
func (f family) wayRules(w way, from string) (rules [][]expr.Any) {
	add := func(parts ...[]expr.Any) {
		var exprs []expr.Any
		for _, p := range parts {
			exprs = append(exprs, p...)
		}
		rules = append(rules, exprs)
	}
	at := f.endpointRegister()
	dnat := []expr.Any{&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.proto), RegAddrMin: at, RegProtoMin: foundRegister - 1, Specified: true}}
	client := load(behindRegister, f.src, f.size)
	affinity := "affinity" + f.suffix
	remember := func(operation uint32) []expr.Any {
		return []expr.Any{&expr.Dynset{SrcRegKey: listRegister, SrcRegData: at, SetName: affinity, Operation: operation, Timeout: time.Duration(w.affinity()) * time.Second}}
	}
	pick := [][]expr.Any{
		{&expr.Numgen{Register: behindRegister, Modulus: w.number(), Type: unix.NFT_NG_RANDOM}},
		lookup("endpoints"+f.suffix, listRegister, at),
	}
	for _, front := range [][]expr.Any{f.front(f.dst), f.nodePort()} {
		found := [][]expr.Any{f.isFamily(), front, lookup(from+f.suffix, keyRegister, foundRegister)}
		if w.affinity() > 0 {
			// Where the client has been before, if that is an endpoint still; else somewhere, which is remembered, or, when there is no room for that, is not.
			add(append(found, client, lookup(affinity, listRegister, behindRegister), in("members"+f.suffix, listRegister, false),
				client, lookup(affinity, listRegister, at), remember(dynsetUpdate), dnat)...)
			add(append(found, pick[0], pick[1], client, remember(dynsetDelete), remember(dynsetUpdate), dnat)...)
		}
		add(append(found, pick[0], pick[1], dnat)...)
	}
	// Only when the service has just become another one: the client sends again.
	add(verdict(expr.VerdictDrop))
	return rules
}
