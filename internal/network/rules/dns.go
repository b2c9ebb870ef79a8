package rules

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The cluster's DNS is served by the host, at addresses of its own (Config.DNS):
//
//   - no host port is mapped at them, whatever pods ask for;
//   - only pods and the host itself reach them, unless CNI connects pods of this node, too: the host is no name server for its
//     neighbours because it has pods;
//   - input chains of others that drop get rules that accept pods' questions.

// dnsPort is where it listens.
const dnsPort = 53

// leaveDNS keeps the addresses out of the host ports.
func (s *shape) leaveDNS(hostports *nftables.Chain, fam family) {
	for _, at := range fam.ofDNS(s.dns) {
		s.rule(hostports, fam.isFamily(), at, verdict(expr.VerdictReturn))
	}
}

// guardDNS drops what comes to the addresses from elsewhere.
func (s *shape) guardDNS(guard *nftables.Chain, fam family) {
	notLoopback := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: interfaceName("lo")},
	}
	for _, at := range fam.ofDNS(s.dns) {
		s.rule(guard, fam.isFamily(), at, s.fromPods(expr.CmpOpNeq), notLoopback, verdict(expr.VerdictDrop))
	}
}

// ofDNS matches each of the family's addresses of the DNS as a destination.
func (fam family) ofDNS(at []netip.Addr) (all [][]expr.Any) {
	for _, a := range at {
		if a.BitLen() == int(fam.size)*8 {
			all = append(all, destination(fam, a.AsSlice()))
		}
	}
	return all
}

// acceptDNS are the questions of pods, for a chain of this family.
func (s site) acceptDNS(of nftables.TableFamily) (all [][]expr.Any) {
	for _, fam := range families {
		if of != nftables.TableFamilyINet && byte(of) != fam.proto {
			continue
		}
		for _, at := range fam.ofDNS(s.dns) {
			for _, proto := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
				exprs := hostEnd(expr.MetaKeyIIFNAME)
				if of == nftables.TableFamilyINet { // elsewhere it is known, and iptables has no word for it
					exprs = append(exprs, fam.isFamily()...)
				}
				exprs = append(exprs, at...)
				all = append(all, append(exprs,
					&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}},
					&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
					&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{dnsPort >> 8, dnsPort}}))
			}
		}
	}
	return all
}
