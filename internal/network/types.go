package network

import (
	"fmt"
	"net/netip"

	"monopod.dev/monopod/internal/kit/ids"
)

// Request says how to connect a sandbox.
type Request struct {
	SandboxID ids.SandboxID
	// NetNS is the path of its network namespace.
	NetNS string
	// HostPorts are the ports of the host that lead to the sandbox.
	HostPorts []HostPort
	// Pod is whose sandbox it is. It names the pod in messages and in CNI's arguments.
	Pod PodInfo
	// Annotations are those of the sandbox's configuration. CNI's capabilities read some of them.
	Annotations map[string]string
	// DNS is what the pod's resolv.conf says; nil: the host's.
	DNS *DNS
	// CgroupParent is the pod's cgroup, in the cgroup driver's syntax; empty: the runtime's own.
	CgroupParent string
}

// HostPort is a port of the host that leads to a port of a sandbox (CRI PortMapping).
type HostPort struct {
	// Protocol is TCP, UDP or SCTP.
	Protocol string `json:"protocol"`
	// HostIP is the only address of the host at which the port is mapped. The zero Addr, 0.0.0.0 and :: mean all addresses
	// of both families.
	HostIP netip.Addr `json:"hostIP,omitzero"`
	// HostPort is never 0: CRI's host_port 0 asks for no mapping, and makes no HostPort.
	HostPort      uint16 `json:"hostPort"`
	ContainerPort uint16 `json:"containerPort"`
}

// Everywhere says that the port is mapped at all addresses of the host.
func (p HostPort) Everywhere() bool { return !p.HostIP.IsValid() || p.HostIP.IsUnspecified() }

// String is as one writes it: "TCP 0.0.0.0:80 to port 8080".
func (p HostPort) String() string {
	ip := "*"
	if !p.Everywhere() {
		ip = p.HostIP.String()
	}
	return fmt.Sprintf("%s %s:%d to port %d", p.Protocol, ip, p.HostPort, p.ContainerPort)
}

// PodInfo names a pod.
type PodInfo struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// Qualified is the pod's name with its namespace, or empty.
func (p PodInfo) Qualified() string {
	if p.Name == "" {
		return ""
	}
	return p.Namespace + "/" + p.Name
}

// DNS is the content of a resolv.conf.
type DNS struct{ Servers, Searches, Options []string }

// InterfaceName is the name of the interface in a sandbox.
const InterfaceName = "eth0"

// Result is what a connected sandbox has.
type Result struct {
	// IPs are the sandbox's addresses, one a family, IPv4 first.
	IPs []netip.Addr
	// Gateway is the next hop of the default route, of the family of the first address. It is the zero Addr where the
	// network tells none (CNI).
	Gateway netip.Addr
	// Interface is the name of the interface in the sandbox.
	Interface string
}

// InterfaceStat are the counters of one interface since it was made, as its sandbox sees them: Rx is what the sandbox has
// received.
type InterfaceStat struct {
	Name                                    string
	RxBytes, RxPackets, RxErrors, RxDropped uint64
	TxBytes, TxPackets, TxErrors, TxDropped uint64
}
