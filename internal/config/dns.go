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

func (v *faults) dns(d *v1alpha1.DNS) {
	v.oneOf("dns.server", d.Server, Enabled, Disabled)
	for _, server := range d.Upstreams {
		if _, err := Upstream(server); err != nil {
			v.add("dns.upstreams", server, `be an IP address, or one with a port: "192.0.2.53", "192.0.2.53:5353", "[2001:db8::53]:5353"`)
		}
	}
}

// Upstream reads an entry of dns.upstreams.
func Upstream(server string) (netip.AddrPort, error) {
	const port = 53
	if a, err := netip.ParseAddr(server); err == nil {
		return netip.AddrPortFrom(a, port), nil
	}
	return netip.ParseAddrPort(server)
}
