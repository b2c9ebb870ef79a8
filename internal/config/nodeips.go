package config

import (
	"net/netip"

	"monopod.dev/monopod/api/config/v1alpha1"
)

// nodeIPs checks the addresses of the node, as far as they are addresses.
func nodeIPs(c *v1alpha1.NodeConfiguration, f *faults) {
	const key = "agent.nodeIPs"
	families := map[bool]bool{}
	for _, a := range c.Agent.NodeIPs {
		ip, err := netip.ParseAddr(a)
		if err != nil {
			continue
		}
		if ip.IsUnspecified() || ip.IsMulticast() || ip.Zone() != "" {
			f.add(key, a, "be one of the host's own, such as 192.168.1.10")
		}
		if families[ip.Is4()] {
			f.add(key, a, "be at most one of each family")
		}
		families[ip.Is4()] = true
	}
}
