package rules

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"monopod.dev/monopod/internal/host/nlsock"
	"monopod.dev/monopod/internal/host/ruleset"
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

// Groups of interfaces. Those of all nodes begin with groupOfNodes, by which nodes of one host know each other's.
const (
	groupOfNodes     = 0x6d000000
	groupOfNodesMask = 0xff000000
	// LeavingGroup are the ends that are about to be deleted, of whichever node of this host.
	LeavingGroup = 0x6d706f64
	// BridgeGroup are the bridges themselves, of all nodes of a host.
	BridgeGroup = 0x6d706272
)

// PortGroup is the interface group of the host's ends of a bridge's sandboxes.
func PortGroup(bridge string) uint32 {
	sum := sha256.Sum256([]byte("ports of " + bridge))
	group := groupOfNodes | binary.BigEndian.Uint32(sum[:])>>8
	if group == LeavingGroup || group == BridgeGroup {
		group++
	}
	return group
}

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

func (f *firewall) sources(fam sourceFamily) *nftables.Set {
	return &nftables.Set{Table: f.table, ID: fam.id, Name: fam.set, KeyType: nftables.MustConcatSetType(nftables.TypeIFName, fam.of.typ)}
}

// sourceRequests let the sandboxes' packets out of their interfaces, or with on false do not any more.
func (f *firewall) sourceRequests(on bool, recs ...lease.Lease) (reqs []nlsock.Request) {
	if !f.guards() {
		return nil
	}
	for _, fam := range sourceFamilies {
		var all []nftables.SetElement
		for _, rec := range recs {
			all = append(all, sourceElements(fam, rec)...)
		}
		reqs = append(reqs, ruleset.ElementRequests(f.sources(fam), all, on)...)
	}
	return reqs
}

// guards says whether there is a source guard.
func (f *firewall) guards() bool { return !f.rules.cfg.NoSourceGuard }

// guardSources puts the guard into the transaction.
func (f *firewall) guardSources(c *nftables.Chain, leases map[string]lease.Lease) error {
	for _, fam := range sourceFamilies {
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
	f.rule(c, f.fromPods(expr.CmpOpNeq), verdict(expr.VerdictAccept))
	for _, fam := range sourceFamilies {
		const address = keyRegister + 4 // behind the name's 16 bytes
		f.rule(c, fam.of.isFamily(), []expr.Any{
			&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: keyRegister},
			&expr.Payload{DestRegister: address, Base: expr.PayloadBaseNetworkHeader, Offset: fam.of.src, Len: fam.of.size},
			&expr.Lookup{SourceRegister: keyRegister, SetName: fam.set, SetID: fam.id},
		}, verdict(expr.VerdictAccept))
	}
	f.rule(c, refused())
	return nil
}

// checkSources says whether the guard has all sandboxes.
func (f *firewall) checkSources() error {
	if !f.guards() {
		return nil
	}
	leases := f.admitted(false)
	for _, fam := range sourceFamilies {
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

// fromPods and toPods compare the group of a packet's interface with that of the host's ends.
func (f *firewall) fromPods(op expr.CmpOp) []expr.Any {
	return group(expr.MetaKeyIIFGROUP, op, PortGroup(f.rules.cfg.Bridge))
}

func (f *firewall) toPods(op expr.CmpOp) []expr.Any {
	return group(expr.MetaKeyOIFGROUP, op, PortGroup(f.rules.cfg.Bridge))
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
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: native(groupOfNodesMask), Xor: make([]byte, 4)},
		&expr.Cmp{Op: op, Register: 1, Data: native(groupOfNodes)},
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
