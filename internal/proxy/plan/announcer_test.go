package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"monopod.dev/monopod/internal/kit/iprange"
)

func TestAnnounced(t *testing.T) {
	balanced := func(change ...func(*corev1.Service)) *corev1.Service {
		return service(append([]func(*corev1.Service){external(corev1.ServiceTypeLoadBalancer)}, change...)...)
	}
	v4 := func(ends ...string) []*discoveryv1.EndpointSlice {
		return []*discoveryv1.EndpointSlice{slice(discoveryv1.AddressTypeIPv4, ends...)}
	}
	both := []string{elsewhere, here}
	for name, c := range map[string]struct {
		service *corev1.Service
		slices  []*discoveryv1.EndpointSlice
		nodes   []string
		by      []string // any of them
	}{
		"by the only node":                     {balanced(), nil, []string{here}, []string{here}},
		"while no node is known":               {balanced(), nil, nil, nil},
		"by one of two":                        {balanced(), nil, both, []string{here, elsewhere}},
		"an address that is in no range":       {balanced(func(s *corev1.Service) { s.Status.LoadBalancer.Ingress[0].IP = "192.0.3.7" }), nil, both, nil},
		"of a service of another type":         {service(func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.7"} }), nil, both, nil},
		"policy Local, the only one with some": {balanced(localOutside), v4("10.61.0.6 elsewhere"), both, []string{elsewhere}},
		"policy Local, only here ready":        {balanced(localOutside), v4("10.61.0.6 elsewhere -ready", "10.61.0.5 here"), both, []string{here}},
		"policy Local, about to end":           {balanced(localOutside), v4("10.61.0.5 here -ready +serving +terminating"), both, []string{here}},
		"policy Local, none anywhere":          {balanced(localOutside), nil, []string{here}, []string{here}},
		"policy Local, of another family":      {balanced(localOutside), []*discoveryv1.EndpointSlice{slice(discoveryv1.AddressTypeIPv6, "fd61::5 elsewhere")}, []string{here}, []string{here}},
	} {
		var by []string
		for _, node := range append(slices.Clone(c.nodes), "neither") {
			of := Node{Name: node, Balancers: []iprange.Range{iprange.Of(netip.MustParsePrefix("192.0.2.0/24"))}, Announcers: c.nodes}
			if p := Of(Input{Service: c.service, Slices: c.slices, Node: of}); len(p.Announced) > 0 {
				by = append(by, node)
			}
		}
		if wanted := len(c.by) > 0; len(by) > 1 || (len(by) == 1) != wanted || wanted && !slices.Contains(c.by, by[0]) {
			t.Errorf("%s: announced by %q, want one of %q", name, by, c.by)
		}
	}
}

// Addresses are spread over the nodes, and the going of a node moves its own alone.
func TestAnnouncersAreSpread(t *testing.T) {
	nodes := []string{"a", "b", "c"}
	count := map[string]int{}
	for i := range 90 {
		a := netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", i))
		by := func(nodes ...string) string {
			return Announcer(Input{Service: service(), Node: Node{Announcers: nodes}}, discoveryv1.AddressTypeIPv4, a)
		}
		was := by(nodes...)
		count[was]++
		if again := by("c", "b", "a"); again != was {
			t.Errorf("%s: %s, in another order %s", a, was, again)
		}
		if after := by("a", "b"); was != "c" && after != was {
			t.Errorf("%s moves from %s to %s when c goes", a, was, after)
		}
	}
	for _, n := range nodes {
		if count[n] < 10 {
			t.Errorf("of 90 addresses %v", count)
		}
	}
}
