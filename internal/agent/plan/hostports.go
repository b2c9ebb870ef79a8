package plan

import (
	v1 "k8s.io/api/core/v1"
)

// NodePortsMessage tells why a pod is not admitted.
const NodePortsMessage = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"

// HostPort is a port of the host that a pod asks for.
type HostPort struct {
	Protocol v1.Protocol
	// IP is the address of the host; empty: all of them.
	IP   string
	Port int32
}

// HostPorts are the ports of the host that a pod asks for, those too at which a pod of the host's network listens.
func HostPorts(pod *v1.Pod) (ports []HostPort) {
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].Ports {
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
	for _, x := range a {
		for _, y := range b {
			if x.Protocol == y.Protocol && x.Port == y.Port && (x.IP == y.IP || x.IP == "" || y.IP == "") {
				return true
			}
		}
	}
	return false
}
