package servicecidr

import (
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNeeds(t *testing.T) {
	cidr := func(name string, cidrs ...string) *networkingv1.ServiceCIDR {
		return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: cidrs}}
	}
	gone := func(c *networkingv1.ServiceCIDR) *networkingv1.ServiceCIDR {
		now := metav1.NewTime(time.Unix(1, 0))
		c.DeletionTimestamp = &now
		return c
	}
	ip := func(name, by string) *networkingv1.IPAddress {
		return &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{networkingv1.LabelManagedBy: by}}}
	}
	it := gone(cidr("it", "10.1.0.0/24", "fd00::/112"))
	for name, c := range map[string]struct {
		others    []*networkingv1.ServiceCIDR
		addresses []*networkingv1.IPAddress
		want      string
	}{
		"nothing":                     {nil, nil, ""},
		"an address":                  {nil, []*networkingv1.IPAddress{ip("10.1.0.7", manager)}, "10.1.0.7"},
		"one of IPv6":                 {nil, []*networkingv1.IPAddress{ip("fd00::7", manager)}, "fd00::7"},
		"another's":                   {nil, []*networkingv1.IPAddress{ip("10.1.0.7", "me")}, ""},
		"one outside":                 {nil, []*networkingv1.IPAddress{ip("10.2.0.7", manager)}, ""},
		"a larger range has it":       {[]*networkingv1.ServiceCIDR{cidr("all", "10.0.0.0/8")}, []*networkingv1.IPAddress{ip("10.1.0.7", manager)}, ""},
		"a part of it does not":       {[]*networkingv1.ServiceCIDR{cidr("part", "10.1.0.0/29")}, []*networkingv1.IPAddress{ip("10.1.0.7", manager), ip("10.1.0.8", manager)}, "10.1.0.8"},
		"one that is deleted as well": {[]*networkingv1.ServiceCIDR{gone(cidr("all", "10.0.0.0/8"))}, []*networkingv1.IPAddress{ip("10.1.0.7", manager)}, "10.1.0.7"},
	} {
		if got := needs(it, append(c.others, it), c.addresses); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
