package config

import "net/netip"

// nodeIPs checks the addresses of the node.
func (v *faults) nodeIPs(addresses []string) {
	const key = "agent.nodeIPs"
	families := map[bool]bool{}
	for _, a := range addresses {
		ip, err := netip.ParseAddr(a)
		if err != nil {
			v.address(key, a)
			continue
		}
		if ip.IsUnspecified() || ip.IsMulticast() || ip.Zone() != "" {
			v.add(key, a, "be one of the host's own, such as 192.168.1.10")
		}
		if families[ip.Is4()] {
			v.add(key, a, "be at most one of each family")
		}
		families[ip.Is4()] = true
	}
}
