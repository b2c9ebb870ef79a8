package table

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"

	"monopod.dev/monopod/internal/netpolicy/compile"
)

// portsSet is the set of the ports of profiles.
const portsSet = "ports"

// prefixes are what the names of the other sets and of the chains begin with: the direction, what comes to a pod and what goes out.
var prefixes = [2]string{compile.Ingress: "in", compile.Egress: "out"}

func digit(a netip.Addr) string {
	if a.Is4() {
		return "4"
	}
	return "6"
}

func podsSet(d int, a netip.Addr) string   { return prefixes[d] + "pods" + digit(a) }
func peersSet(d int, a netip.Addr) string  { return prefixes[d] + "peers" + digit(a) }
func blocksSet(d int, a netip.Addr) string { return prefixes[d] + "blocks" + digit(a) }
func openSet(d int) string                 { return prefixes[d] + "open" }
func portedSet(d int) string               { return prefixes[d] + "ported" }
func selfSet(a netip.Addr) string          { return "self" + digit(a) }

// setSpec says what a set is.
type setSpec struct {
	name     string
	key      nftables.SetDatatype
	gives    bool // it is a map, to a number
	blanks   int  // ... with so many words before it that say nothing (rules.go: registers)
	interval bool // of single keys
	ranges   bool // of which the last part of the key is a range
	id       uint32
}

// setSpecs are all of them.
func setSpecs() (all []setSpec) {
	concat := nftables.MustConcatSetType
	mark := nftables.TypeMark
	for d := range compile.Directions {
		for _, fam := range families {
			all = append(all,
				setSpec{name: podsSet(d, fam.any), key: fam.typ, gives: true, blanks: 1},
				setSpec{name: peersSet(d, fam.any), key: fam.typ, gives: true, blanks: 2},
				setSpec{name: blocksSet(d, fam.any), key: fam.typ, gives: true, blanks: 2, interval: true})
		}
		all = append(all, setSpec{name: openSet(d), key: concat(mark, mark)}, setSpec{name: portedSet(d), key: concat(mark, mark), gives: true, blanks: 1})
	}
	all = append(all, setSpec{name: portsSet, key: concat(mark, nftables.TypeInetProto, nftables.TypeInetService), ranges: true})
	for _, fam := range families {
		all = append(all, setSpec{name: selfSet(fam.any), key: concat(fam.typ, fam.typ)})
	}
	for i := range all {
		all[i].id = uint32(i + 1)
	}
	return all
}

// data is what a map gives.
func (s setSpec) data() nftables.SetDatatype {
	return nftables.MustConcatSetType(slices.Repeat([]nftables.SetDatatype{nftables.TypeMark}, s.blanks+1)...)
}

// value is a number as a map gives it.
func (s setSpec) value(number string) []byte {
	return append(make([]byte, s.blanks*len(number)), number...)
}

// set is how the library has it.
func (s setSpec) set(t *nftables.Table) *nftables.Set {
	return &nftables.Set{Table: t, ID: s.id, Name: s.name, KeyType: s.key, IsMap: s.gives, DataType: s.data(),
		Interval: s.interval || s.ranges, Concatenation: s.ranges}
}

// family is what differs between IPv4 and IPv6.
type family struct {
	name     string
	proto    byte   // NFPROTO
	size     uint32 // of an address
	src, dst uint32 // where the header has them
	typ      nftables.SetDatatype
	any      netip.Addr // an address, for the names of sets
}
