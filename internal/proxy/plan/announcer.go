package plan

import (
	"bytes"
	"crypto/sha256"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Announcer is the node that makes an address of a service known on its network; empty: none does. All nodes that know the same come to the same one, addresses are
// spread over the nodes, and a node that comes or goes moves its own alone (rendezvous hashing). With the policy Local it is one that has endpoints, as long as there
// is one: others would not answer.
func Announcer(in Input, family discoveryv1.AddressType, a netip.Addr) (chosen string) {
	nodes := in.Node.Announcers
	if in.Service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		with := nodesOf(in.Slices, family)
		if having := slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return !with[n] }); len(having) > 0 {
			nodes = having
		}
	}
	var most [sha256.Size]byte
	for _, n := range nodes {
		weight := sha256.Sum256([]byte(a.String() + " " + n))
		if chosen == "" || bytes.Compare(weight[:], most[:]) > 0 {
			chosen, most = n, weight
		}
	}
	return chosen
}

// nodesOf are the nodes of endpoints of a family that answer.
func nodesOf(of []*discoveryv1.EndpointSlice, family discoveryv1.AddressType) map[string]bool {
	nodes := map[string]bool{}
	for _, s := range of {
		if s.AddressType != family {
			continue
		}
		for i := range s.Endpoints {
			c := s.Endpoints[i].Conditions
			if deref(c.Ready, true) || deref(c.Serving, false) {
				nodes[deref(s.Endpoints[i].NodeName, "")] = true
			}
		}
	}
	return nodes
}
