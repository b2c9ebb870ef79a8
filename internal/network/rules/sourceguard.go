package rules

import (
	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"monopod.dev/monopod/internal/host/nlsock"
	"monopod.dev/monopod/internal/host/ruleset"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network/lease"
)

// The source guard lets out of a sandbox's interface only what bears the sandbox's own addresses:
//
//	set from4 { type ifname . ipv4_addr }   # the host's end and an address that belong together
//	set from6 { type ifname . ipv6_addr }
//	chain sources {
//	    type filter hook prerouting priority raw - 1;    # before connection tracking, and all that is judged or translated
//	    iifgroup != <ports> accept
//	    iifname . ip saddr @from4 accept
//	    iifname . ip6 saddr @from6 accept
//	    counter drop
//	}
//
// The host's ends are known by their interface group, which they have from their making: one whose elements are not there yet, or
// not any more, lets nothing out. A sandbox costs two elements and no rule, a packet one look into a hash table.
//
// No other sandbox ever sees a frame: what is not IP ends at the host's end, which neither answers ARP nor learns from it (IFF_NOARP). Without a
// link-local source no sandbox can send neighbour or router advertisements.
const sourcesChain = "sources"

// sourceFamily is what the guard has for a family of addresses.
type sourceFamily struct {
	set string
	of  family
	id  uint32
}

var sourceFamilies = []sourceFamily{{"from4", families[0], 81}, {"from6", families[1], 82}}

// sourceElements say what a sandbox may bear. It is pure.
func sourceElements(fam sourceFamily, rec lease.Lease) (out []nftables.SetElement) {
	for _, a := range rec.Addresses {
		if ip := a.Address.Addr(); ip.BitLen() == int(fam.of.size)*8 {
			out = append(out, nftables.SetElement{Key: append(interfaceName(rec.Interface), ip.AsSlice()...)})
		}
	}
	return out
}

func (s site) sources(fam sourceFamily) *nftables.Set {
	return &nftables.Set{Table: s.table, ID: fam.id, Name: fam.set, KeyType: nftables.MustConcatSetType(nftables.TypeIFName, fam.of.typ)}
}

// sourceRequests let the sandboxes' packets out of their interfaces, or with on false do not any more.
func (s site) sourceRequests(on bool, recs ...lease.Lease) (reqs []nlsock.Request) {
	if !s.guards {
		return nil
	}
	for _, fam := range sourceFamilies {
		var all []nftables.SetElement
		for _, rec := range recs {
			all = append(all, sourceElements(fam, rec)...)
		}
		reqs = append(reqs, ruleset.ElementRequests(s.sources(fam), all, on)...)
	}
	return reqs
}

// guardSources writes the sets, and the rules into this chain.
func (s *shape) guardSources(c *nftables.Chain, leases map[ids.SandboxID]lease.Lease) {
	for _, fam := range sourceFamilies {
		var all []nftables.SetElement
		for _, rec := range leases {
			// One that leaves may have its interface still. It is kept in its bounds until that is gone.
			all = append(all, sourceElements(fam, rec)...)
		}
		s.set(s.sources(fam), all)
	}
	s.rule(c, s.fromPods(expr.CmpOpNeq), verdict(expr.VerdictAccept))
	for _, fam := range sourceFamilies {
		const address = keyRegister + 4 // behind the name's 16 bytes
		s.rule(c, fam.of.isFamily(), []expr.Any{
			&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: keyRegister},
			&expr.Payload{DestRegister: address, Base: expr.PayloadBaseNetworkHeader, Offset: fam.of.src, Len: fam.of.size},
			&expr.Lookup{SourceRegister: keyRegister, SetName: fam.set, SetID: fam.id},
		}, verdict(expr.VerdictAccept))
	}
	s.rule(c, refused())
}
