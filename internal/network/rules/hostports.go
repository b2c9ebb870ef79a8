package rules

import (
	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"monopod.dev/monopod/internal/host/nlsock"
	"monopod.dev/monopod/internal/host/ruleset"
	"monopod.dev/monopod/internal/network/lease"
)

// elementsInMessage keeps a message below the 64 KiB that an attribute of netlink can have.
const elementsInMessage = 500

// sets are the maps and the set of a family.
type sets struct{ at, any, to *nftables.Set }

func (s site) sets(fam family) sets {
	target := nftables.MustConcatSetType(fam.typ, nftables.TypeInetService)
	one := nftables.MustConcatSetType(nftables.TypeInetProto, fam.typ, nftables.TypeInetService)
	all := nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeInetService)
	// With ids of our own, that are unique in a transaction, the library does not count them in a variable that all share.
	id := uint32(fam.proto) << 2
	return sets{
		at:  &nftables.Set{Table: s.table, ID: id, Name: fam.at, IsMap: true, KeyType: one, DataType: target},
		any: &nftables.Set{Table: s.table, ID: id + 1, Name: fam.any, IsMap: true, KeyType: all, DataType: target},
		to:  &nftables.Set{Table: s.table, ID: id + 2, Name: fam.to, KeyType: one},
	}
}

// each are the sets with the elements that they get from elements.
func (s sets) each(e elements, do func(*nftables.Set, []nftables.SetElement)) {
	for _, c := range []struct {
		set  *nftables.Set
		with []nftables.SetElement
	}{{s.at, e.at}, {s.any, e.any}, {s.to, e.to}} {
		do(c.set, c.with)
	}
}

// elements are what host ports put into the sets of a family.
type elements struct{ at, any, to []nftables.SetElement }

// portElements returns the elements of one sandbox's host ports. It is pure.
func portElements(fam family, rec lease.Lease) (e elements) {
	for _, a := range rec.Addresses {
		ip := a.Address.Addr()
		if ip.BitLen() != int(fam.size)*8 {
			continue
		}
		seen := map[[2]any]bool{}
		for _, p := range rec.HostPorts {
			proto := lease.Protocols[p.Protocol]
			value := append(ip.AsSlice(), portBytes(p.ContainerPort)...)
			switch {
			case p.Everywhere():
				e.any = append(e.any, nftables.SetElement{Key: append([]byte{proto, 0, 0, 0}, portBytes(p.HostPort)...), Val: value})
			case p.HostIP.BitLen() == ip.BitLen():
				key := append([]byte{proto, 0, 0, 0}, p.HostIP.AsSlice()...)
				e.at = append(e.at, nftables.SetElement{Key: append(key, portBytes(p.HostPort)...), Val: value})
			default:
				continue
			}
			// Two host ports may lead to one port.
			if k := [2]any{proto, p.ContainerPort}; !seen[k] {
				seen[k] = true
				e.to = append(e.to, nftables.SetElement{Key: append([]byte{proto, 0, 0, 0}, value...)})
			}
		}
	}
	return e
}

func (e *elements) add(o elements) {
	e.at, e.any, e.to = append(e.at, o.at...), append(e.any, o.any...), append(e.to, o.to...)
}

// portBytes is a port as it is in a set: in network order, filled up to 4 bytes.
func portBytes(port uint16) []byte { return []byte{byte(port >> 8), byte(port), 0, 0} }

// portKey loads protocol, address (unless its offset is 0) and destination port, as the sets have them.
func (fam family) portKey(address uint32) []expr.Any {
	register := uint32(keyRegister)
	key := []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register}}
	register++
	if address != 0 {
		key = append(key, &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: address, Len: fam.size})
		register += fam.size / 4
	}
	return append(key, &expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2})
}

// dnat translates the destination to what the map has for the key.
func (fam family) dnat(set *nftables.Set) []expr.Any {
	return []expr.Any{
		&expr.Lookup{SourceRegister: keyRegister, DestRegister: dataRegister, IsDestRegSet: true, SetName: set.Name, SetID: set.ID},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(fam.proto), RegAddrMin: dataRegister, RegProtoMin: dataRegister + fam.size/4, Specified: true},
	}
}

// portRequests map the host ports of a sandbox, or with on false take them away.
func (s site) portRequests(rec lease.Lease, on bool) (reqs []nlsock.Request) {
	for _, fam := range families {
		s.sets(fam).each(portElements(fam, rec), func(set *nftables.Set, with []nftables.SetElement) {
			reqs = append(reqs, ruleset.ElementRequests(set, with, on)...)
		})
	}
	return reqs
}

// leaveOwnPorts keeps the node's own ports out of the host ports: also of what an earlier process has mapped.
func (s *shape) leaveOwnPorts(hostports *nftables.Chain) {
	for _, o := range s.ownPorts {
		s.rule(hostports, []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{lease.Protocols[o.Protocol]}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{byte(o.Port >> 8), byte(o.Port)}},
		}, verdict(expr.VerdictReturn))
	}
}
