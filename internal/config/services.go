package config

import (
	"fmt"
	"net/netip"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/kit/iprange"
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
	v.ranges(c, "network.loadBalancerRanges", c.Network.LoadBalancerRanges, pods)
	v.ranges(c, "services.externalIPs", c.Services.ExternalIPs, pods)
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

// ranges holds ranges of addresses of services, beside those that the cluster gives them, against what they can be.
func (v *faults) ranges(c *v1alpha1.NodeConfiguration, key string, given, pods []string) {
	var others []iprange.Range
	for _, text := range given {
		r, err := iprange.Parse(text)
		if err != nil {
			v.add(key, text, fmt.Sprintf("be a prefix, FIRST-LAST or one address, such as 192.168.1.240/28 or 192.168.1.240-192.168.1.250: %v", err))
			continue
		}
		for _, a := range []netip.Addr{r.First, r.Last} {
			if a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() {
				v.add(key, text, fmt.Sprintf("have addresses that others reach, and not %s", a))
			}
		}
		for _, o := range others {
			if o.Overlaps(r) {
				v.add(key, text, fmt.Sprintf("be apart from the range %s", o))
			}
		}
		others = append(others, r)
		for _, what := range []struct {
			of  string
			all []string
		}{{"pods", pods}, {"services", c.APIServer.ServiceCIDRs}} {
			for _, cidr := range what.all {
				if p, err := netip.ParsePrefix(cidr); err == nil && iprange.Of(p).Overlaps(r) {
					v.add(key, text, fmt.Sprintf("be apart from the range of %s %s", what.of, cidr))
				}
			}
		}
	}
}

// LoadBalancerRanges are those of a valid configuration.
func LoadBalancerRanges(n v1alpha1.Network) []iprange.Range { return parsed(n.LoadBalancerRanges) }

// ExternalRanges are those of a valid configuration, of addresses that services may name.
func ExternalRanges(s v1alpha1.Services) []iprange.Range { return parsed(s.ExternalIPs) }

// ClusterRanges are those of services and, as far as a configuration has them, of pods.
func ClusterRanges(c *v1alpha1.NodeConfiguration) []iprange.Range {
	return append(parsed(c.APIServer.ServiceCIDRs), parsed(PodRanges(c.Network))...)
}

func parsed(texts []string) (all []iprange.Range) {
	for _, text := range texts {
		if r, err := iprange.Parse(text); err == nil {
			all = append(all, r)
		}
	}
	return all
}
