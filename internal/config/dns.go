package config

import (
	"fmt"
	"net/netip"
	"strings"

	"monopod.dev/monopod/api/config/v1alpha1"
)

const (
	// maxNameservers is how many name servers a resolver takes.
	maxNameservers = 3
	// maxClusterDomain leaves room for the names of services and namespaces in a name of DNS.
	maxClusterDomain = 120
)

func clusterDNS(c *v1alpha1.NodeConfiguration, f *faults) {
	if servers := c.Agent.ClusterDNS; len(servers) > maxNameservers {
		f.add("agent.clusterDNS", strings.Join(servers, ","), fmt.Sprintf("have at most %d addresses, as many as a resolver asks", maxNameservers))
	}
}

var clusterDomain = text(func(s string) bool { return isDomain(s, maxClusterDomain) },
	fmt.Sprintf("be a DNS name of lower-case letters, digits, '-' and '.', at most %d characters, such as \"cluster.local\"", maxClusterDomain))

func isUpstream(s string) bool { _, err := Upstream(s); return err == nil }

// Upstream reads an entry of dns.upstreams.
func Upstream(server string) (netip.AddrPort, error) {
	const port = 53
	if a, err := netip.ParseAddr(server); err == nil {
		return netip.AddrPortFrom(a, port), nil
	}
	return netip.ParseAddrPort(server)
}
