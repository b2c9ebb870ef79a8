package rules

import (
	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"monopod.dev/monopod/internal/network/lease"
)

// leaveOwnPorts keeps the node's own ports out of the host ports: also of what an earlier process has mapped.
func (f *firewall) leaveOwnPorts(hostports *nftables.Chain) {
	for _, o := range f.rules.cfg.OwnPorts {
		f.rule(hostports, []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{lease.Protocols[o.Protocol]}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{byte(o.Port >> 8), byte(o.Port)}},
		}, verdict(expr.VerdictReturn))
	}
}
