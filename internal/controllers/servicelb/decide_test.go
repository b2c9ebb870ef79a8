package servicelb

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/kit/iprange"
)

func lb(name string, age int, ports ...int32) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, CreationTimestamp: metav1.NewTime(time.Unix(int64(10000-age), 0))},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}}}
	for _, p := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Protocol: corev1.ProtocolTCP, Port: p})
	}
	return s
}

func node(name string, isReady bool, addresses ...string) *corev1.Node {
	status := corev1.ConditionFalse
	if isReady {
		status = corev1.ConditionTrue
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}}}
	for _, a := range addresses {
		kind, ip, _ := strings.Cut(a, "=")
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeAddressType(kind), Address: ip})
	}
	return n
}

// It is pure.
func TestShare(t *testing.T) {
	has := func(s *corev1.Service) *corev1.Service {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
		return s
	}
	dual := lb("web", 1, 80)
	dual.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	excluded := node("b", true, "InternalIP=192.0.2.2")
	excluded.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: ""}
	one := node("a", true, "InternalIP=192.0.2.1", "InternalIP=2001:db8::1", "Hostname=a")
	for name, c := range map[string]struct {
		services []*corev1.Service
		nodes    []*corev1.Node
		taken    map[port]string
		want     string
	}{
		"one":                        {[]*corev1.Service{lb("web", 1, 80)}, []*corev1.Node{one}, nil, "web [192.0.2.1]"},
		"both families":              {[]*corev1.Service{dual}, []*corev1.Node{one}, nil, "web [2001:db8::1 192.0.2.1]"},
		"an external address":        {[]*corev1.Service{lb("web", 1, 80)}, []*corev1.Node{node("a", true, "InternalIP=10.0.0.1", "ExternalIP=192.0.2.9")}, nil, "web [192.0.2.9]"},
		"nobody reaches loopback":    {[]*corev1.Service{lb("web", 1, 80)}, []*corev1.Node{node("a", true, "InternalIP=127.0.0.1")}, nil, "web []"},
		"two nodes, one is excluded": {[]*corev1.Service{lb("web", 1, 80)}, []*corev1.Node{excluded, one}, nil, "web [192.0.2.1]"},
		"one is not ready":           {[]*corev1.Service{lb("web", 1, 80)}, []*corev1.Node{one, node("c", false, "InternalIP=192.0.2.3")}, nil, "web [192.0.2.1]"},
		"none is ready":              {[]*corev1.Service{lb("web", 1, 80)}, []*corev1.Node{node("c", false, "InternalIP=192.0.2.3")}, nil, "web [192.0.2.3]"},
		"the elder has the port":     {[]*corev1.Service{lb("young", 1, 443, 80), lb("old", 2, 80)}, []*corev1.Node{one}, nil, "old [192.0.2.1], young: port 80/TCP of the nodes is in use: by service default/old"},
		"who has it keeps it":        {[]*corev1.Service{has(lb("young", 1, 80)), lb("old", 2, 80)}, []*corev1.Node{one}, nil, "old: port 80/TCP of the nodes is in use: by service default/young, young [192.0.2.1]"},
		"somebody else has it":       {[]*corev1.Service{lb("web", 1, 80)}, []*corev1.Node{one}, map[port]string{{corev1.ProtocolTCP, 80}: "nginx (process 7)"}, "web: port 80/TCP of the nodes is in use: by nginx (process 7)"},
		"somebody came later":        {[]*corev1.Service{has(lb("web", 1, 80))}, []*corev1.Node{one}, map[port]string{{corev1.ProtocolTCP, 80}: "nginx"}, "web [192.0.2.1]"},
		"another protocol":           {[]*corev1.Service{lb("web", 1, 80)}, []*corev1.Node{one}, map[port]string{{corev1.ProtocolUDP, 80}: "nginx"}, "web [192.0.2.1]"},
	} {
		var told []string
		for s, d := range share(inOrder(c.services), c.nodes, func(p port) string { return c.taken[p] }) {
			if d.refused != "" {
				told = append(told, s.Name+": "+d.refused)
			} else {
				told = append(told, fmt.Sprint(s.Name, " ", d.addresses))
			}
		}
		slices.Sort(told)
		if got := strings.Join(told, ", "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// It is pure.
func TestAllot(t *testing.T) {
	of := func(s *corev1.Service, wants string, families ...corev1.IPFamily) *corev1.Service {
		s.Spec.LoadBalancerIP = wants
		if len(families) > 0 {
			s.Spec.IPFamilies = families
		}
		return s
	}
	has := func(s *corev1.Service, all ...string) *corev1.Service {
		for _, a := range all {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
		}
		return s
	}
	const v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol
	four, six := "192.0.2.4-192.0.2.6", "2001:db8::/127"
	for name, c := range map[string]struct {
		ranges   string
		services []*corev1.Service
		want     string
	}{
		"the same port twice":          {four, []*corev1.Service{lb("old", 2, 80), lb("young", 1, 80)}, "old [192.0.2.4], young [192.0.2.5]"},
		"what it has it keeps":         {four, []*corev1.Service{lb("old", 2, 80), has(lb("young", 1, 80), "192.0.2.4")}, "old [192.0.2.5], young [192.0.2.4]"},
		"both families":                {four + " " + six, []*corev1.Service{of(lb("web", 1, 80), "", v6, v4)}, "web [2001:db8:: 192.0.2.4]"},
		"a family more":                {four + " " + six, []*corev1.Service{has(of(lb("a", 2, 80), "", v4, v6), "192.0.2.5"), has(of(lb("b", 1, 80), "", v6), "2001:db8::")}, "a [192.0.2.5 2001:db8::1], b [2001:db8::]"},
		"a family less":                {four + " " + six, []*corev1.Service{has(lb("a", 2, 80), "2001:db8::", "192.0.2.5")}, "a [192.0.2.5]"},
		"no range of one":              {four, []*corev1.Service{of(lb("web", 1, 80), "", v6, v4)}, "web [192.0.2.4]"},
		"no range of any":              {four, []*corev1.Service{of(lb("web", 1, 80), "", v6)}, "web: AddressNotInRange: none of the ranges [192.0.2.4-192.0.2.6] is of the service's families [IPv6]"},
		"one that it asks for":         {four, []*corev1.Service{of(lb("web", 1, 80), "192.0.2.6")}, "web [192.0.2.6]"},
		"another than it has":          {four, []*corev1.Service{has(of(lb("web", 1, 80), "192.0.2.6"), "192.0.2.4")}, "web [192.0.2.6]"},
		"one that another has":         {four, []*corev1.Service{of(lb("web", 2, 80), "192.0.2.4"), has(lb("young", 1, 80), "192.0.2.4")}, "web: AddressInUse: loadBalancerIP 192.0.2.4 is in use: by service default/young, young [192.0.2.4]"},
		"one that no range has":        {four, []*corev1.Service{of(lb("web", 1, 80), "192.0.2.7")}, "web: AddressNotInRange: loadBalancerIP 192.0.2.7 is in none of the ranges [192.0.2.4-192.0.2.6]"},
		"no address":                   {four, []*corev1.Service{of(lb("web", 1, 80), "web.example")}, `web: AddressNotInRange: loadBalancerIP "web.example" is no address`},
		"asked for one family of two":  {four + " " + six, []*corev1.Service{of(lb("web", 1, 80), "2001:db8::1", v4, v6)}, "web [192.0.2.4 2001:db8::1]"},
		"the node's own":               {"192.0.2.1-192.0.2.2", []*corev1.Service{lb("web", 1, 80), of(lb("y", 0, 80), "192.0.2.1")}, "web [192.0.2.2], y: AddressInUse: loadBalancerIP 192.0.2.1 is in use: by node a"},
		"all are in use":               {"192.0.2.4", []*corev1.Service{lb("old", 2, 80), lb("young", 1, 80)}, "old [192.0.2.4], young: NoAddressFree: all IPv4 addresses of the ranges [192.0.2.4] are in use"},
		"who is refused holds nothing": {"192.0.2.4 2001:db8::4", []*corev1.Service{has(lb("four", 3, 80), "192.0.2.4"), of(lb("old", 2, 80), "", v6, v4), of(lb("young", 1, 80), "", v6)}, "four [192.0.2.4], old: NoAddressFree: all IPv4 addresses of the ranges [192.0.2.4 2001:db8::4] are in use, young [2001:db8::4]"},
		"two ranges":                   {"192.0.2.9 192.0.2.4", []*corev1.Service{lb("old", 2, 80), lb("young", 1, 80)}, "old [192.0.2.9], young [192.0.2.4]"},
		"it had the node's":            {four, []*corev1.Service{has(lb("web", 1, 80), "192.0.2.1")}, "web [192.0.2.4]"},
		"two say that they have it":    {four, []*corev1.Service{has(lb("old", 2, 80), "192.0.2.5"), has(lb("young", 1, 80), "192.0.2.5")}, "old [192.0.2.5], young [192.0.2.4]"},
		"the last addresses there are": {"255.255.255.255", []*corev1.Service{lb("old", 2, 80), lb("young", 1, 80)}, "old [255.255.255.255], young: NoAddressFree: all IPv4 addresses of the ranges [255.255.255.255] are in use"},
	} {
		var ranges []iprange.Range
		for _, text := range strings.Fields(c.ranges) {
			r, err := iprange.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			ranges = append(ranges, r)
		}
		var told []string
		for s, d := range allot(inOrder(c.services), []*corev1.Node{node("a", true, "InternalIP=192.0.2.1", "Hostname=a")}, ranges) {
			if d.refused != "" {
				told = append(told, fmt.Sprintf("%s: %s: %s", s.Name, d.reason, d.refused))
			} else {
				told = append(told, fmt.Sprint(s.Name, " ", d.addresses))
			}
		}
		slices.Sort(told)
		if got := strings.Join(told, ", "); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, c.want)
		}
	}
}

func BenchmarkAllot1000(b *testing.B) {
	r, err := iprange.Parse("10.0.0.0/16")
	if err != nil {
		b.Fatal(err)
	}
	var all []*corev1.Service
	for i := range 1000 {
		all = append(all, lb(fmt.Sprint("s", i), i, 80))
	}
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			allot(inOrder(all), nil, []iprange.Range{r})
		}
	})
	for s, d := range allot(inOrder(all), nil, []iprange.Range{r}) {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: d.addresses[0]}}
	}
	b.Run("kept", func(b *testing.B) {
		for b.Loop() {
			allot(inOrder(all), nil, []iprange.Range{r})
		}
	})
}
