package bridge

import (
	"monopod.dev/monopod/internal/host/sockdiag"
	"monopod.dev/monopod/internal/network/lease"
)

// warnOfListeners tells of processes of the host that listen where a sandbox is about to get host ports: what comes there is the sandbox's then.
func (b *Bridge) warnOfListeners(sandboxID string, rec lease.Lease) {
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

// lower are the names of lease.Protocols as the kernel's files have them.
var lower = map[string]string{"TCP": "tcp", "UDP": "udp", "SCTP": "sctp"}
