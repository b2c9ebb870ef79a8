package config

import (
	"fmt"
	"strconv"
	"strings"

	"monopod.dev/monopod/api/config/v1alpha1"
)

// OwnPort is a port of the host, with TCP, UDP or SCTP, at which the node itself serves.
type OwnPort struct {
	Protocol string
	Port     uint16
}

// ParseOwnPort reads PORT, which is TCP's, or PORT/PROTOCOL.
func ParseOwnPort(s string) (OwnPort, error) {
	number, protocol, given := strings.Cut(s, "/")
	if protocol = strings.ToUpper(protocol); !given {
		protocol = "TCP"
	}
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || n == 0 || protocol != "TCP" && protocol != "UDP" && protocol != "SCTP" {
		return OwnPort{}, fmt.Errorf("%q is no port: use PORT or PORT/PROTOCOL, such as 10250 or 53/UDP", s)
	}
	return OwnPort{protocol, uint16(n)}, nil
}

// guards holds what keeps pods and the host's other networks apart against what it can be.
func (v *faults) guards(n v1alpha1.Network) {
	v.oneOf("network.sourceGuard", n.SourceGuard, Enabled, Disabled)
	v.oneOf("network.forwardGuard", n.ForwardGuard, Enabled, Disabled)
	v.oneOf("network.foreignRules", n.ForeignRules, Enabled, Disabled)
	if c := n.ConnectionsPerPod; c != nil && *c < 0 {
		v.add("network.connectionsPerPod", *c, "be 0 (no limit) or more")
	}
	for _, s := range n.OwnPorts {
		if _, err := ParseOwnPort(s); err != nil {
			v.add("network.ownPorts", s, "be a port, or PORT/PROTOCOL, such as 10250 or 53/UDP")
		}
	}
}
