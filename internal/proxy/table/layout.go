package table

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/proxy/plan"
)

// The table, in the words of nft:
//
//	table inet <name> {
//	    map services4  { type inet_proto . ipv4_addr . inet_service : mark . mark . mark . mark . mark }  # blank, flags, way, list
//	    map outside4   { ... }                                       # where it is otherwise for connections from elsewhere
//	    map endpoints4 { type mark . mark . mark : ipv4_addr . inet_service }                      # list, number: endpoint
//	    map ways4, outways4 { type mark : verdict }                  # how one of so many is picked
//	    set own4       { type ipv4_addr }                            # addresses that are services' alone
//	    set guarded4   { type ipv4_addr }                            # those of them that are the host's own for services only
//	    set limited4   { type inet_proto . ipv4_addr . inet_service }                              # from some only ...
//	    set allowed4   { type inet_proto . ipv4_addr . inet_service . ipv4_addr; flags interval }  # ... these
//	    set hairpin4   { type ipv4_addr . ipv4_addr }                # who would be sent to itself
//	    map affinity4  { type mark . mark . ipv4_addr : ipv4_addr . inet_service; flags dynamic,timeout }  # client: endpoint
//	    set members4   { type mark . mark . ipv4_addr . inet_service }                             # what affinity may still say
//	}
//
// and all of it with a 6. A list is known by 64 bits of a hash of its name, so that nothing has to be remembered. A node port has the address 0.0.0.0, or ::.

// kind is what a set is for.
type kind uint8

const (
	services kind = iota
	outside
	endpoints
	own
	guarded
	limited
	allowed
	hairpin
	members
	kinds
)

// family is what differs between IPv4 and IPv6.
type family struct {
	suffix   string
	proto    byte   // NFPROTO
	size     uint32 // of an address
	src, dst uint32 // where the header has them
	typ      nftables.SetDatatype
}

var families = [2]family{
	{"4", unix.NFPROTO_IPV4, 4, 12, 16, nftables.TypeIPAddr},
	{"6", unix.NFPROTO_IPV6, 16, 8, 24, nftables.TypeIP6Addr},
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// setID is one of the sets that Apply changes.
type setID struct {
	kind   kind
	family uint8
}

// element is a key of a set. The key of a range is its beginning and its end.
type element struct {
	set setID
	key string
}

// way says how a connection gets its endpoint: one of so many, with or without affinity, or not at all.
type way uint32

const (
	waySize        = 14 // bits of the number; above them are the seconds of affinity
	refuse     way = 1<<31 | 1
	refuseElse way = 1<<31 | 2
	silence    way = 1<<31 | 3
)

// flagMasquerade is bit 0 of a target's flags.
const flagMasquerade = 1

func balance(n int, affinity uint32) way { return way(uint32(n) | affinity<<waySize) }

func (w way) refuses() bool    { return w&(1<<31) != 0 }
func (w way) number() uint32   { return uint32(w) & (1<<waySize - 1) }
func (w way) affinity() uint32 { return uint32(w) >> waySize }

// name is that of the way's chain, behind what the connection is.
func (w way) name() string {
	if w.affinity() == 0 {
		return fmt.Sprintf("one-of-%d", w.number())
	}
	return fmt.Sprintf("one-of-%d-for-%ds", w.number(), w.affinity())
}

func wayOf(t plan.Target, l plan.List) way {
	switch t.Action {
	case plan.Reject:
		return refuse
	case plan.RejectElsewhere:
		return refuseElse
	case plan.Drop:
		return silence
	}
	return balance(len(l.Endpoints), l.Affinity)
}

// listID is what a list is known by in the kernel.
type listID [8]byte

func idOf(name string) (id listID) {
	sum := sha256.Sum256([]byte(name))
	copy(id[:], sum[:])
	return id
}

func native(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

// portBytes is a port as it is in a set: in network order, filled up to 4 bytes.
func portBytes(port uint16) []byte { return []byte{byte(port >> 8), byte(port), 0, 0} }

func protocolBytes(p uint8) []byte { return []byte{p, 0, 0, 0} }

func concat(parts ...[]byte) string {
	var b strings.Builder
	for _, p := range parts {
		b.Write(p)
	}
	return b.String()
}

func frontKey(f plan.Front) []byte {
	return []byte(concat(protocolBytes(f.Protocol), f.Addr.AsSlice(), portBytes(f.Port)))
}

// frontOf reads a key of services or outside.
func frontOf(key string) (f plan.Front, ok bool) {
	if len(key) < 12 {
		return f, false
	}
	f.Protocol = key[0]
	at := len(key) - 4
	f.Addr, ok = netip.AddrFromSlice([]byte(key[4:at]))
	f.Port = uint16(key[at])<<8 | uint16(key[at+1])
	return f, ok
}

func endpointBytes(e netip.AddrPort) []byte {
	return []byte(concat(e.Addr().AsSlice(), portBytes(e.Port())))
}

// endpointOf reads a value of endpoints.
func endpointOf(value string) (netip.AddrPort, bool) {
	if len(value) < 8 {
		return netip.AddrPort{}, false
	}
	at := len(value) - 4
	a, ok := netip.AddrFromSlice([]byte(value[:at]))
	return netip.AddrPortFrom(a, uint16(value[at])<<8|uint16(value[at+1])), ok
}

// set is the definition of one of the sets that Apply changes.
func (n names) set(id setID) *nftables.Set {
	f := families[id.family]
	mark, port, proto := nftables.TypeMark, nftables.TypeInetService, nftables.TypeInetProto
	of := nftables.MustConcatSetType
	front := of(proto, f.typ, port)
	s := &nftables.Set{Table: n.own}
	switch id.kind {
	case services:
		s.Name, s.KeyType, s.IsMap, s.DataType = "services", front, true, of(mark, mark, mark, mark, mark)
	case outside:
		s.Name, s.KeyType, s.IsMap, s.DataType = "outside", front, true, of(mark, mark, mark, mark, mark)
	case endpoints:
		s.Name, s.KeyType, s.IsMap, s.DataType = "endpoints", of(mark, mark, mark), true, of(f.typ, port)
	case own:
		s.Name, s.KeyType = "own", f.typ
	case guarded:
		s.Name, s.KeyType = "guarded", f.typ
	case limited:
		s.Name, s.KeyType = "limited", front
	case allowed:
		s.Name, s.KeyType, s.Interval, s.Concatenation = "allowed", of(proto, f.typ, port, f.typ), true, true
	case hairpin:
		s.Name, s.KeyType = "hairpin", of(f.typ, f.typ)
	case members:
		s.Name, s.KeyType = "members", of(mark, mark, f.typ, port)
	}
	s.Name += f.suffix
	// With ids of our own, that are unique in a transaction, the library does not count them in a variable that all share.
	s.ID = 1 + uint32(id.kind)*2 + uint32(id.family)
	return s
}

// names are the own table, and the one that versions before had beside it: pods were ports of a bridge then, whose frames it led by the host.
type names struct{ own, former *nftables.Table }

func namesOf(table string) names {
	return names{
		own:    &nftables.Table{Name: table, Family: nftables.TableFamilyINet},
		former: &nftables.Table{Name: table, Family: nftables.TableFamilyBridge},
	}
}

// setIDs are the sets that Apply changes.
func setIDs() (all []setID) {
	for k := range kinds {
		for f := range families {
			all = append(all, setID{k, uint8(f)})
		}
	}
	return all
}
