package config

import (
	"fmt"
	"net/netip"

	"monopod.dev/monopod/api/config/v1alpha1"
)

const (
	defaultServiceCIDR = "10.43.0.0/16"
	// defaultPodCIDR is the bridge's own default, which services must leave alone.
	defaultPodCIDR = "10.61.0.0/16"
)

// services holds what is said of services against what they can be.
func (v *faults) services(c *v1alpha1.NodeConfiguration) {
	if a := c.APIServer.AdvertiseAddress; a != "" {
		if ip, err := netip.ParseAddr(a); err != nil || ip.IsLoopback() || ip.IsUnspecified() {
			v.add("apiServer.advertiseAddress", a, "be an IP address that pods reach, and not their own loopback")
		}
	}
	const key = "apiServer.serviceCIDRs"
	pods := PodRanges(c.Network)
	if len(pods) == 0 {
		pods = []string{defaultPodCIDR}
	}
	families := map[bool]string{}
	for _, cidr := range c.APIServer.ServiceCIDRs {
		p, err := netip.ParsePrefix(cidr)
		switch {
		case err != nil || p.Addr().Is4In6():
			v.add(key, cidr, `be a range, such as "10.43.0.0/16" or "fd00:10:43::/112"`)
			continue
		case p.Masked() != p:
			v.add(key, cidr, fmt.Sprintf("have no host bits set: %s", p.Masked()))
		case p.Addr().Is4() && (p.Bits() < 12 || p.Bits() > 28):
			v.add(key, cidr, "be of a size that services need: a /12 to a /28")
		case p.Addr().Is6() && (p.Bits() < 64 || p.Bits() > 124):
			v.add(key, cidr, "be of a size that services need: a /64 to a /124")
		}
		if other := families[p.Addr().Is4()]; other != "" {
			v.add(key, cidr, fmt.Sprintf("be of another family than %s: at most one IPv4 and one IPv6 range", other))
		}
		families[p.Addr().Is4()] = cidr
		for _, of := range pods {
			if other, err := netip.ParsePrefix(of); err == nil && other.Overlaps(p) {
				v.add(key, cidr, fmt.Sprintf("be apart from the range of pods %s", of))
			}
		}
	}
}
