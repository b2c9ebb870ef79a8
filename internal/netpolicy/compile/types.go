// Package compile says what network policies mean: policies, namespaces and pods become sets of addresses, classes and ports that a packet is looked up in.
// It is pure, and knows nothing of the kernel.
//
// A packet costs the same however many policies and pods there are, because everything that addresses have in common is one number, a class:
//
//	the class of a pod of this node     the policies that isolate it in a direction; Free: none does
//	the class of a peer                 which of the peers that policies name it is: selectors of pods, blocks of addresses
//	a profile                           which ports are open between two classes
//
// So a packet is looked up by its pod, by its peer, and by the two classes together. A class keeps its number for as long as anything is of it.
package compile

import (
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"
)

// Class is a number that addresses have in common.
type Class uint32

const (
	// Free is the class of a pod that nothing isolates.
	Free Class = 0
	// Anybody is the class of all peers, whoever they are.
	Anybody Class = 1
	// firstClass is the first number that is given out.
	firstClass Class = 2
)

// Profile is a number that equal lists of ports have in common.
type Profile uint32

// Direction is that of a connection, as a pod of this node sees it.
type Direction int

// The directions.
const (
	Ingress Direction = iota
	Egress
)

// Directions are both.
var Directions = [2]Direction{Ingress, Egress}

// Pod is what is to be known of a pod.
type Pod struct {
	// Key tells it from all others: the id of its sandbox, or its UID where it has none here.
	Key string
	// Kind says what policies see of it; pods with the same are alike to them.
	Kind *Kind
	// Addresses are its own; a pod of the host's network has none.
	Addresses []netip.Addr
	// Local: it is on this node's network, where policies about it are enforced.
	Local bool
}

// Kind is what policies see of a pod.
type Kind struct {
	Namespace string
	Labels    map[string]string
	// Ports are those of its containers that have names.
	Ports []NamedPort
	// print is the whole of it.
	print string
}

// NamedPort is a port of a container.
type NamedPort struct {
	Name     string
	Protocol byte
	Number   uint16
}

// Namespace is what is to be known of a namespace.
type Namespace struct {
	Name   string
	Labels map[string]string
}

// Pair is a class of pods of this node and a class of peers.
type Pair struct{ Pod, Peer Class }

// PortRange are ports of a protocol, both ends included, that a profile has.
type PortRange struct {
	Profile  Profile
	Protocol byte
	From, To uint16
}

// Block are the addresses of a class of peers that no pod has, both ends included.
type Block struct {
	From, To netip.Addr
	Class    Class
}

// Verdicts are what one direction is judged by.
type Verdicts struct {
	// Pods are the classes of this node's pods, by address. One that is not there is nobody's that is known.
	Pods map[netip.Addr]Class
	// Peers are the classes of pods as peers. Who is not there is judged by its block.
	Peers map[netip.Addr]Class
	// Blocks are disjoint and in order.
	Blocks []Block
	// Open are the pairs between which everything may pass, Ported those between which some ports may. A pair that is in neither may pass nothing; what
	// holds for Anybody holds beside what holds for a class.
	Open   map[Pair]bool
	Ported map[Pair]Profile
}

// Rules are what packets are judged by.
type Rules struct {
	Verdicts [2]Verdicts
	// Ports are what profiles have.
	Ports map[PortRange]bool
	// Version tells these rules from all others. Before is the version of those that they differ from in nothing but what Touched names; nil: they may differ in all.
	Version, Before *Version
	Touched         Touched
	// Problems are policies of which a part cannot be understood, and is let pass nothing.
	Problems []Problem
}

// Version is what rules are told apart by: each is another, and has nothing to it.
type Version struct{ _ byte }

// Touched is what may be otherwise than before.
type Touched struct {
	// Addresses are those of Verdicts.Pods and Verdicts.Peers.
	Addresses map[netip.Addr]bool
	// Pairs are directions of which Open and Ported may be; where one is, Ports may be.
	Pairs [2]bool
}

// Problem is what is wrong with a policy.
type Problem struct {
	Policy *networkingv1.NetworkPolicy
	Text   string
}
