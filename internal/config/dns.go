package config

import (
	"fmt"
	"strings"

	"monopod.dev/monopod/api/config/v1alpha1"
)

const (
	// maxNameservers is how many name servers a resolver takes.
	maxNameservers = 3
	// maxClusterDomain leaves room for the names of services and namespaces in a name of DNS.
	maxClusterDomain = 120
)

func (v *faults) clusterDNS(a *v1alpha1.Agent) {
	for _, server := range a.ClusterDNS {
		v.address("agent.clusterDNS", server)
	}
	if n := len(a.ClusterDNS); n > maxNameservers {
		v.add("agent.clusterDNS", strings.Join(a.ClusterDNS, ","), fmt.Sprintf("have at most %d addresses, as many as a resolver asks", maxNameservers))
	}
	bad := len(a.ClusterDomain) > maxClusterDomain
	for label := range strings.SplitSeq(a.ClusterDomain, ".") {
		bad = bad || !isDNSLabel(label)
	}
	if bad {
		v.add("agent.clusterDomain", a.ClusterDomain, fmt.Sprintf("be a DNS name of lower-case letters, digits, '-' and '.', at most %d characters, such as \"cluster.local\"", maxClusterDomain))
	}
}
