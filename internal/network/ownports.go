package network

import (
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"monopod.dev/monopod/internal/host/sockdiag"
)

// OwnPort is a port at which the node itself serves, at whichever addresses: its API, or its kubelet's. It never leads to a pod, for then the node would be locked
// out of itself: whatever connects to it, by 127.0.0.1 too, would reach the pod.
type OwnPort struct {
	// Protocol is TCP, UDP or SCTP.
	Protocol string
	Port     uint16
	// Of is what serves there, in words: "the agent's".
	Of string
}

// refuseOwn is AlreadyExists when one of the ports is the node's own. It is pure.
func refuseOwn(ports []HostPort, own []OwnPort) error {
	for _, p := range ports {
		for _, o := range own {
			if p.Protocol == o.Protocol && p.HostPort == o.Port {
				return fmt.Errorf("host port %s: port %d is %s, at which the node itself serves; use another port: %w", p, p.HostPort, o.Of, errdefs.ErrAlreadyExists)
			}
		}
	}
	return nil
}

// RefuseOwn is the refusal of a request for the node's own ports, for who maps host ports otherwise.
func RefuseOwn(req Request, own []OwnPort) error {
	if err := refuseOwn(req.HostPorts, own); err != nil {
		return fmt.Errorf("network of sandbox %s: %w", req.SandboxID, err)
	}
	return nil
}

// leaveOwnPorts keeps the node's own ports out of the host ports: also of what an earlier process has mapped.
func (f *firewall) leaveOwnPorts(hostports *nftables.Chain) {
	for _, o := range f.bridge.cfg.OwnPorts {
		f.rule(hostports, []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{protocols[o.Protocol]}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{byte(o.Port >> 8), byte(o.Port)}},
		}, verdict(expr.VerdictReturn))
	}
}

// warnOfListeners tells of processes of the host that listen where a sandbox is about to get host ports: what comes there is the sandbox's then.
func (b *Bridge) warnOfListeners(sandboxID string, rec lease) {
	for _, p := range rec.HostPorts {
		var who string
		_ = b.onHost(func() error { // it says nothing then
			who = sockdiag.Listener(lower[p.Protocol], p.HostPort)
			return nil
		})
		if who != "" {
			b.log.Warn("a process of the host listens at a host port: who connects to it reaches the pod from now on", "port", p.String(), "listener", who, "pod", rec.Pod, "sandbox", sandboxID)
		}
	}
}

// lower are the names of protocols as the kernel's files have them.
var lower = map[string]string{"TCP": "tcp", "UDP": "udp", "SCTP": "sctp"}
