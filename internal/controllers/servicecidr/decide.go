package servicecidr

import (
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"
)

// needs is an address that only one range has, or "": the range can go. Ranges that are being deleted themselves are no reason to let another one go. It is pure.
func needs(c *networkingv1.ServiceCIDR, all []*networkingv1.ServiceCIDR, addresses []*networkingv1.IPAddress) string {
	own := prefixes(c)
	var others []netip.Prefix
	for _, o := range all {
		if o.Name != c.Name && o.DeletionTimestamp == nil {
			others = append(others, prefixes(o)...)
		}
	}
	for _, a := range addresses {
		ip, err := netip.ParseAddr(a.Name)
		if err == nil && a.Labels[networkingv1.LabelManagedBy] == manager && in(own, ip) && !in(others, ip) {
			return a.Name
		}
	}
	return ""
}

func in(all []netip.Prefix, ip netip.Addr) bool {
	for _, p := range all {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}

func prefixes(c *networkingv1.ServiceCIDR) (all []netip.Prefix) {
	for _, s := range c.Spec.CIDRs {
		if p, err := netip.ParsePrefix(s); err == nil { // the API has validated it
			all = append(all, p)
		}
	}
	return all
}
