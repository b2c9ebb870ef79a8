// Package podnet says what a node's built-in networks of pods are: their names, interface groups and ranges, and what else on the host is called by them. The composition root makes
// the value once, from the configuration, and gives it to all who know pods' packets: the network itself, network policies, the proxy of services, the DNS. It is pure.
package podnet

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strings"
)

// MaxName is how many bytes the name of an interface may have: IFNAMSIZ without the zero.
const MaxName = 15

// Network is a built-in network of pods.
type Network struct {
	// Name is that of its bridge, the interface that has the pods' gateways, and of its table of nftables: 1 to MaxName bytes. No two networks of a host have the same.
	Name string
	// Ranges are those of its pods' addresses, at most one of a family, which says the families that pods have; the first address of each is the gateway's. None: the network
	// chooses (package bridge).
	Ranges []netip.Prefix
}

// ServicesTable is the name of the tables of a node's services, which the proxy makes, where the network is the node's first.
func (n Network) ServicesTable() string { return n.Name + servicesSuffix }

const servicesSuffix = "-services"

// NetworkOf is the name of the network that a table is called by: the network's own, or that of its node's services.
func NetworkOf(table string) string { return strings.TrimSuffix(table, servicesSuffix) }

// Networks are those of one node, at least one. What a node has once, however many they are, is called by the first.
type Networks []Network

// Mark is the name by which that goes of which the node has one on the host.
func (n Networks) Mark() string { return n[0].Name }

// ServicesTable is the name of the node's table of services.
func (n Networks) ServicesTable() string { return n[0].ServicesTable() }

// PolicyTable is the name of the node's table of network policies.
func (n Networks) PolicyTable() string { return n.Mark() + "-policy" }

// PortGroups are the interface groups of the host's ends of the node's pods.
func (n Networks) PortGroups() (all []uint32) {
	for _, one := range n {
		all = append(all, one.PortGroup())
	}
	return all
}

// DNSLink is the name of the interface that has the addresses of the cluster's DNS.
func (n Networks) DNSLink() string {
	const suffix = "-dns"
	if len(n.Mark())+len(suffix) <= MaxName {
		return n.Mark() + suffix
	}
	sum := sha256.Sum256([]byte(n.Mark()))
	return "mpdns" + hex.EncodeToString(sum[:5])
}
