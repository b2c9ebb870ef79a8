package config

import (
	"fmt"
	"net/netip"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/kit/iprange"
)

// PodRanges returns the configured ranges of pod addresses; none: the default.
func PodRanges(n v1alpha1.Network) []string {
	if n.PodCIDR != "" {
		return []string{n.PodCIDR}
	}
	return n.PodCIDRs
}

func podCIDRs(c *v1alpha1.NodeConfiguration, f *faults) {
	key, n := "network.podCIDRs", c.Network
	if n.PodCIDR != "" {
		key = "network.podCIDR"
		if len(n.PodCIDRs) > 0 {
			f.add(key, n.PodCIDR, "not be given together with network.podCIDRs")
		}
	}
	prefixes(f, key, PodRanges(n), `be a range, such as "`+DefaultPodCIDR+`" or "fd00:10:61::/64"`, func(p netip.Prefix) (must string) {
		switch {
		case p.Addr().Is4() && p.Bits() > 29:
			return "have room for pods: a /29 or larger"
		case p.Addr().Is6() && p.Bits() > 124:
			return "have room for pods: a /124 or larger"
		}
		return ""
	})
}

func serviceCIDRs(c *v1alpha1.NodeConfiguration, f *faults) {
	const key = "apiServer.serviceCIDRs"
	all := prefixes(f, key, c.APIServer.ServiceCIDRs, `be a range, such as "`+defaultServiceCIDR+`" or "fd00:10:43::/112"`, func(p netip.Prefix) (must string) {
		switch {
		case p.Addr().Is4() && (p.Bits() < 12 || p.Bits() > 28):
			return "be of a size that services need: a /12 to a /28"
		case p.Addr().Is6() && (p.Bits() < 64 || p.Bits() > 124):
			return "be of a size that services need: a /64 to a /124"
		}
		return ""
	})
	for _, p := range all {
		for _, of := range podRangesOrDefault(c) {
			if other, err := netip.ParsePrefix(of); err == nil && other.Overlaps(p) {
				f.add(key, p, fmt.Sprintf("be apart from the range of pods %s", of))
			}
		}
	}
}

// prefixes holds ranges, of which there is at most one of each family, against what they can be, and returns those that are ranges.
func prefixes(f *faults, key string, given []string, must string, sized func(netip.Prefix) (must string)) (all []netip.Prefix) {
	families := map[bool]string{}
	for _, cidr := range given {
		p, err := netip.ParsePrefix(cidr)
		if err != nil || p.Addr().Is4In6() {
			f.add(key, cidr, must)
			continue
		}
		all = append(all, p)
		if p.Masked() != p {
			f.add(key, cidr, fmt.Sprintf("have no host bits set: %s", p.Masked()))
		} else if must := sized(p); must != "" {
			f.add(key, cidr, must)
		}
		if other := families[p.Addr().Is4()]; other != "" {
			f.add(key, cidr, fmt.Sprintf("be of another family than %s: at most one IPv4 and one IPv6 range", other))
		}
		families[p.Addr().Is4()] = cidr
	}
	return all
}

func podRangesOrDefault(c *v1alpha1.NodeConfiguration) []string {
	if pods := PodRanges(c.Network); len(pods) > 0 {
		return pods
	}
	return []string{DefaultPodCIDR}
}

func loadBalancerRanges(c *v1alpha1.NodeConfiguration, f *faults) {
	apart(c, f, "network.loadBalancerRanges", c.Network.LoadBalancerRanges)
}

func externalIPs(c *v1alpha1.NodeConfiguration, f *faults) {
	apart(c, f, "services.externalIPs", c.Services.ExternalIPs)
}

// apart holds ranges of addresses that services have beside those that the cluster gives them against each other and against the cluster's.
func apart(c *v1alpha1.NodeConfiguration, f *faults, key string, given []string) {
	var others []iprange.Range
	for _, text := range given {
		r, err := iprange.Parse(text)
		if err != nil {
			continue
		}
		for _, o := range others {
			if o.Overlaps(r) {
				f.add(key, text, fmt.Sprintf("be apart from the range %s", o))
			}
		}
		others = append(others, r)
		for _, what := range []struct {
			of  string
			all []string
		}{{"pods", podRangesOrDefault(c)}, {"services", c.APIServer.ServiceCIDRs}} {
			for _, cidr := range what.all {
				if p, err := netip.ParsePrefix(cidr); err == nil && iprange.Of(p).Overlaps(r) {
					f.add(key, text, fmt.Sprintf("be apart from the range of %s %s", what.of, cidr))
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
