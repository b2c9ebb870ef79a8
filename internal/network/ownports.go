package network

import (
	"fmt"

	"github.com/containerd/errdefs"
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

// TakenBy is AlreadyExists when one of the ports is the node's own. It is pure.
func TakenBy(ports []HostPort, own []OwnPort) error {
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
	if err := TakenBy(req.HostPorts, own); err != nil {
		return fmt.Errorf("network of sandbox %s: %w", req.SandboxID, err)
	}
	return nil
}
