package pods

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// HostPort is a port of the host that a pod asks for.
type HostPort struct {
	Protocol v1.Protocol
	// IP is the address of the host; empty: all of them.
	IP   string
	Port int32
}

// HostPorts are the ports of the host that a pod asks for, those too at which a pod of the host's network listens. Init containers that end
// have none: their ports are nobody's by the time the others run.
func HostPorts(spec *v1.PodSpec) (ports []HostPort) {
	for role, c := range Containers(spec) {
		if !role.Main() {
			continue
		}
		for _, p := range c.Ports {
			if p.HostPort == 0 {
				continue
			}
			port := HostPort{Protocol: p.Protocol, IP: p.HostIP, Port: p.HostPort}
			if port.Protocol == "" {
				port.Protocol = v1.ProtocolTCP
			}
			if port.IP == "0.0.0.0" || port.IP == "::" {
				port.IP = ""
			}
			ports = append(ports, port)
		}
	}
	return ports
}

// Conflict says that two pods cannot have their ports of the host at the same time.
func Conflict(a, b []HostPort) bool {
	return slices.ContainsFunc(a, func(x HostPort) bool {
		return slices.ContainsFunc(b, func(y HostPort) bool {
			return x.Protocol == y.Protocol && x.Port == y.Port && (x.IP == y.IP || x.IP == "" || y.IP == "")
		})
	})
}

// OwnPort is a port of the host at which the node itself serves. No pod gets it: whoever connects to the node would reach the pod.
type OwnPort struct {
	Protocol v1.Protocol
	Port     int32
	// Of is what serves there, in words.
	Of string
}

// String is as in "host port 10250/TCP is the agent's".
func (o OwnPort) String() string {
	return fmt.Sprintf("host port %d/%s is %s", o.Port, o.Protocol, o.Of)
}

// Owned is the port of the node's own that a pod asks for; false: there is none. A pod of the host's network has no port led to it: who listens there first has it.
func Owned(spec *v1.PodSpec, wanted []HostPort, own []OwnPort) (OwnPort, bool) {
	if spec.HostNetwork {
		return OwnPort{}, false
	}
	for _, w := range wanted {
		for _, o := range own {
			if o.Protocol == w.Protocol && o.Port == w.Port {
				return o, true
			}
		}
	}
	return OwnPort{}, false
}
