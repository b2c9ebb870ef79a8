package plan

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"monopod.dev/monopod/internal/kit/iprange"
)

// Node is the node that it is planned for.
type Node struct {
	Name string
	// Zone is the node's label topology.kubernetes.io/zone.
	Zone string
	// Balancers are ranges of addresses that are load balancers' alone.
	Balancers []iprange.Range
	// Addresses are the node's own.
	Addresses []netip.Addr
	// OwnPorts are those at which the node itself serves, whatever services want.
	OwnPorts map[Port]bool
	// External are the ranges of addresses that spec.externalIPs may name. Closed are those that no service takes by naming them: of pods, of services, of the node's
	// DNS and of its gateways.
	External, Closed []iprange.Range
	// Announcers are the names of the nodes of which one is to announce each of these addresses, in any order.
	Announcers []string
}

// Port is one of the node's.
type Port struct {
	Protocol uint8
	Number   uint16
}

// Input is what is known of a service.
type Input struct {
	Service *corev1.Service
	// Loopback are ports of the service at which processes of the node listen on loopback addresses: these keep them.
	Loopback map[Port]bool
	Slices   []*discoveryv1.EndpointSlice
	Node     Node
}

// Front is where a service is reached. Protocol is that of IP (6 TCP, 17 UDP, 132 SCTP). The unspecified address of a family stands for every address that the
// node itself has: Port is a node port then.
type Front struct {
	Protocol uint8
	Addr     netip.Addr
	Port     uint16
}

// Action says what becomes of a connection.
type Action uint8

const (
	// Balance leads it to one of the endpoints of a list.
	Balance Action = iota
	// Reject refuses it at once: there is no endpoint anywhere.
	Reject
	// RejectElsewhere is Reject, unless the address is one of the node's own: then the packet is left alone.
	RejectElsewhere
	// Drop says nothing: there are endpoints, but none that the policy allows.
	Drop
)

// Target is where a connection to a front goes.
type Target struct {
	Action Action
	// List is the key of Service.Lists; empty without Balance.
	List string
	// Masquerade: to who is not at this node, or of it, the answer must come by this node.
	Masquerade bool
}

// List is a set of endpoints of which each connection gets one.
type List struct {
	Protocol uint8
	// Endpoints are in order, each once, all of one family, and never none.
	Endpoints []netip.AddrPort
	// Affinity is for how many seconds a client goes to the same endpoint after its last connection; 0: it does not.
	Affinity uint32
	// Keep are endpoints that get no new connections but answer still: what they have is left to them.
	Keep []netip.AddrPort
}

// HealthCheck is what a load balancer asks a node for: whether it has endpoints of a service.
type HealthCheck struct {
	Port uint16
	// Local is how many of the endpoints at this node are ready.
	Local int
}

// Service is the plan. The zero value does nothing.
type Service struct {
	// Inside is for connections of this node's pods and of the node itself, and of all others where Outside says nothing.
	Inside map[Front]Target
	// Outside is for connections from elsewhere.
	Outside map[Front]Target
	// Ranges are whom a front takes connections from; what is not in it takes them from everybody.
	Ranges map[Front][]netip.Prefix
	Lists  map[string]List
	// Addresses are those that are the service's alone: at other ports than its own there is nothing.
	Addresses []netip.Addr
	// Announced are those of them that this node is to make known on the networks that they are of.
	Announced []netip.Addr
	// Local are the endpoints at this node that lists lead to, which may be clients of the service as well, by their protocols.
	Local map[LocalEndpoint]bool
	// HealthCheck is nil where nobody asks.
	HealthCheck *HealthCheck
	// Faults are what was left out, in words, Ignored those that whoever wrote the service has to know: addresses at which nothing is led to it.
	Faults, Ignored []string
}

// LocalEndpoint is an endpoint at this node.
type LocalEndpoint struct {
	Protocol uint8
	At       netip.AddrPort
}
