package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod.dev/monopod/internal/kit/iprange"
)

const here, elsewhere = "here", "elsewhere"

func service(change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.43.0.7", ClusterIPs: []string{"10.43.0.7"},
			Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

func external(typ corev1.ServiceType) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Spec.Type, s.Spec.Ports[0].NodePort = typ, 30080
		if typ == corev1.ServiceTypeLoadBalancer {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.7"}}
		}
	}
}

func localOutside(s *corev1.Service) {
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

func localInside(s *corev1.Service) {
	policy := corev1.ServiceInternalTrafficPolicyLocal
	s.Spec.InternalTrafficPolicy = &policy
}

// end is an endpoint: "10.61.0.5 here", and of ready, serving, terminating, zone=, node= what differs: "-ready".
func end(s string) (e discoveryv1.Endpoint) {
	words := strings.Fields(s)
	e.Addresses, e.NodeName = words[:1], &words[1]
	yes, no := true, false
	for _, w := range words[2:] {
		switch {
		case w == "-ready":
			e.Conditions.Ready = &no
		case w == "+serving":
			e.Conditions.Serving = &yes
		case w == "+terminating":
			e.Conditions.Terminating = &yes
		case strings.HasPrefix(w, "zone=") || strings.HasPrefix(w, "node="):
			if e.Hints == nil {
				e.Hints = &discoveryv1.EndpointHints{}
			}
			if name := w[5:]; w[0] == 'z' {
				e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: name})
			} else {
				e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: name})
			}
		}
	}
	return e
}

func slice(family discoveryv1.AddressType, ends ...string) *discoveryv1.EndpointSlice {
	name, port, protocol := "http", int32(8080), corev1.ProtocolTCP
	s := &discoveryv1.EndpointSlice{AddressType: family, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}}}
	for _, e := range ends {
		s.Endpoints = append(s.Endpoints, end(e))
	}
	return s
}

// told is a plan in words: where, then what happens inside, and outside if that differs.
func told(p Service) (lines []string) {
	words := func(t Target) string {
		switch t.Action {
		case Reject:
			return "rejected"
		case RejectElsewhere:
			return "rejected elsewhere"
		case Drop:
			return "dropped"
		}
		var ends []string
		for _, e := range p.Lists[t.List].Endpoints {
			ends = append(ends, e.String())
		}
		s := strings.Join(ends, " ")
		if a := p.Lists[t.List].Affinity; a > 0 {
			s += fmt.Sprintf(" for %d s", a)
		}
		if t.Masquerade {
			s += " masqueraded"
		}
		return s
	}
	protocols := map[uint8]string{6: "TCP", 17: "UDP", 132: "SCTP"}
	for f, t := range p.Inside {
		line := fmt.Sprintf("%s %s: %s", protocols[f.Protocol], netip.AddrPortFrom(f.Addr, f.Port), words(t))
		if o, differs := p.Outside[f]; differs {
			line += "; outside " + words(o)
		}
		if r, limited := p.Ranges[f]; limited {
			line += fmt.Sprint(" of ", r)
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

func ingressAt(all ...string) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Status.LoadBalancer.Ingress = nil
		for _, ip := range all {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
		}
	}
}

// testNode has the address 198.51.100.9, lets services have the others of its range, and serves at port 6443 itself.
func testNode() Node {
	ranges := func(all ...string) (out []iprange.Range) {
		for _, s := range all {
			r, err := iprange.Parse(s)
			if err != nil {
				panic(err)
			}
			out = append(out, r)
		}
		return out
	}
	return Node{
		Name: here, Zone: "z1", Addresses: []netip.Addr{netip.MustParseAddr("198.51.100.9")}, OwnPorts: map[Port]bool{{6, 6443}: true},
		External: ranges("198.51.100.0/24", "10.0.0.0/8"), Closed: ranges("10.43.0.0/16", "10.61.0.0/16"),
	}
}

// TestWhatIsIgnoredIsSaid: who names an address that is not his hears why nothing comes.
func TestWhatIsIgnoredIsSaid(t *testing.T) {
	s := service(external(corev1.ServiceTypeLoadBalancer), ingressAt("10.43.0.1", "198.51.100.9"), func(s *corev1.Service) {
		s.Spec.ExternalIPs, s.Spec.Ports[0].Port = []string{"8.8.8.8", "198.51.100.9", "10.61.0.1"}, 6443
	})
	want := []string{
		"externalIPs: 8.8.8.8 is in no range that this node permits (services.externalIPs)", "externalIPs: 198.51.100.9 is an address of this node",
		"externalIPs: 10.61.0.1 is an address of pods, of services or of the node", "status.loadBalancer.ingress: 10.43.0.1 is an address of pods, of services or of the node",
		"port 6443 of 198.51.100.9: the node itself serves there",
	}
	if p := Of(Input{Service: s, Node: testNode()}); !slices.Equal(p.Ignored, want) {
		t.Errorf("ignored\n%s\nwant\n%s", strings.Join(p.Ignored, "\n"), strings.Join(want, "\n"))
	}
}

func TestPlan(t *testing.T) {
	v4 := func(ends ...string) []*discoveryv1.EndpointSlice {
		return []*discoveryv1.EndpointSlice{slice(discoveryv1.AddressTypeIPv4, ends...)}
	}
	one, two := "10.61.0.5 here", "10.61.0.6 elsewhere"
	for name, c := range map[string]struct {
		service *corev1.Service
		slices  []*discoveryv1.EndpointSlice
		want    []string
	}{
		"two endpoints":          {service(), v4(two, one), []string{"TCP 10.43.0.7:80: 10.61.0.5:8080 10.61.0.6:8080"}},
		"none":                   {service(), nil, []string{"TCP 10.43.0.7:80: rejected elsewhere"}},
		"none that is ready":     {service(), v4(one + " -ready"), []string{"TCP 10.43.0.7:80: rejected elsewhere"}},
		"the same in two slices": {service(), append(v4(one), v4(one+" -ready")...), []string{"TCP 10.43.0.7:80: 10.61.0.5:8080"}},
		"headless":               {service(func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"} }), v4(one), nil},
		"without an address yet": {service(func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil }), v4(one), nil},
		"a name elsewhere":       {service(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }), v4(one), nil},
		"another proxy's": {service(func(s *corev1.Service) {
			s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "mine"}
		}), v4(one), nil},
		"another port's name":     {service(func(s *corev1.Service) { s.Spec.Ports[0].Name = "other" }), v4(one), []string{"TCP 10.43.0.7:80: rejected elsewhere"}},
		"another protocol":        {service(func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolSCTP }), v4(one), []string{"SCTP 10.43.0.7:80: rejected elsewhere"}},
		"old object, no lists":    {service(func(s *corev1.Service) { s.Spec.ClusterIPs = nil }), v4(one), []string{"TCP 10.43.0.7:80: 10.61.0.5:8080"}},
		"addresses that are none": {service(func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"x", "127.0.0.1", "0.0.0.0"} }), v4(one), []string{"TCP 10.43.0.7:80: 10.61.0.5:8080"}},
		"both families": {
			service(func(s *corev1.Service) {
				s.Spec.ClusterIPs = []string{"10.43.0.7", "fd43::7"}
				external(corev1.ServiceTypeNodePort)(s)
			}),
			append(v4(one), slice(discoveryv1.AddressTypeIPv6, "fd61::5 here")),
			[]string{
				"TCP 0.0.0.0:30080: 10.61.0.5:8080 masqueraded", "TCP 10.43.0.7:80: 10.61.0.5:8080",
				"TCP [::]:30080: [fd61::5]:8080 masqueraded", "TCP [fd43::7]:80: [fd61::5]:8080",
			},
		},
		"one that is about to end, beside one that is ready": {service(), v4(one+" -ready +serving +terminating", two), []string{"TCP 10.43.0.7:80: 10.61.0.6:8080"}},
		"only those that are about to end": {
			service(), v4(one+" -ready +serving +terminating", two+" -ready +terminating"), []string{"TCP 10.43.0.7:80: 10.61.0.5:8080"},
		},
		"endpoints that are none": {service(), v4("127.0.0.1 here", "169.254.169.254 here", "::ffff:127.0.0.1 here", "fd00::1 here", "x here", one), []string{"TCP 10.43.0.7:80: 10.61.0.5:8080"}},
		"affinity": {
			service(func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }), v4(one), []string{"TCP 10.43.0.7:80: 10.61.0.5:8080 for 10800 s"},
		},
		"affinity with a time": {
			service(func(s *corev1.Service) {
				seconds := int32(5)
				s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
				s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
			}), v4(one), []string{"TCP 10.43.0.7:80: 10.61.0.5:8080 for 5 s"},
		},
		"internal policy Local":                  {service(localInside), v4(one, two), []string{"TCP 10.43.0.7:80: 10.61.0.5:8080"}},
		"internal policy Local, none here":       {service(localInside), v4(two), []string{"TCP 10.43.0.7:80: dropped"}},
		"internal policy Local, none anywhere":   {service(localInside), nil, []string{"TCP 10.43.0.7:80: rejected elsewhere"}},
		"internal policy Local, one here ending": {service(localInside), v4(one+" -ready +serving +terminating", two), []string{"TCP 10.43.0.7:80: 10.61.0.5:8080"}},
		"a load balancer": {service(external(corev1.ServiceTypeLoadBalancer)), v4(one, two), []string{
			"TCP 0.0.0.0:30080: 10.61.0.5:8080 10.61.0.6:8080 masqueraded", "TCP 10.43.0.7:80: 10.61.0.5:8080 10.61.0.6:8080",
			"TCP 192.0.2.7:80: 10.61.0.5:8080 10.61.0.6:8080 masqueraded",
		}},
		"a load balancer that is a proxy": {service(external(corev1.ServiceTypeLoadBalancer), func(s *corev1.Service) {
			mode := corev1.LoadBalancerIPModeProxy
			s.Status.LoadBalancer.Ingress[0].IPMode = &mode
		}), v4(one), []string{"TCP 0.0.0.0:30080: 10.61.0.5:8080 masqueraded", "TCP 10.43.0.7:80: 10.61.0.5:8080"}},
		"external policy Local": {service(external(corev1.ServiceTypeLoadBalancer), localOutside), v4(one, two), []string{
			"TCP 0.0.0.0:30080: 10.61.0.5:8080 10.61.0.6:8080; outside 10.61.0.5:8080", "TCP 10.43.0.7:80: 10.61.0.5:8080 10.61.0.6:8080",
			"TCP 192.0.2.7:80: 10.61.0.5:8080 10.61.0.6:8080; outside 10.61.0.5:8080",
		}},
		"external policy Local, none here": {service(external(corev1.ServiceTypeNodePort), localOutside), v4(two), []string{
			"TCP 0.0.0.0:30080: 10.61.0.6:8080; outside dropped", "TCP 10.43.0.7:80: 10.61.0.6:8080",
		}},
		"external addresses": {service(func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"198.51.100.1"} }), v4(one), []string{
			"TCP 10.43.0.7:80: 10.61.0.5:8080", "TCP 198.51.100.1:80: 10.61.0.5:8080 masqueraded",
		}},
		"external addresses that nobody has permitted": {service(func(s *corev1.Service) {
			s.Spec.ExternalIPs = []string{"8.8.8.8", "198.51.100.9", "10.61.0.1", "10.43.0.1"}
		}), v4(one), []string{"TCP 10.43.0.7:80: 10.61.0.5:8080"}},
		"a load balancer at the node's address": {service(external(corev1.ServiceTypeLoadBalancer), ingressAt("198.51.100.9")), v4(one), []string{
			"TCP 0.0.0.0:30080: 10.61.0.5:8080 masqueraded", "TCP 10.43.0.7:80: 10.61.0.5:8080",
			"TCP 127.0.0.1:80: 10.61.0.5:8080 masqueraded", "TCP 198.51.100.9:80: 10.61.0.5:8080 masqueraded",
		}},
		"of the policy Local": {service(external(corev1.ServiceTypeLoadBalancer), localOutside, ingressAt("198.51.100.9")), v4(two), []string{
			"TCP 0.0.0.0:30080: 10.61.0.6:8080; outside dropped", "TCP 10.43.0.7:80: 10.61.0.6:8080",
			"TCP 127.0.0.1:80: 10.61.0.6:8080 masqueraded", "TCP 198.51.100.9:80: 10.61.0.6:8080; outside dropped",
		}},
		"where a program listens at 127.0.0.1": {service(external(corev1.ServiceTypeLoadBalancer), ingressAt("198.51.100.9"), func(s *corev1.Service) { s.Spec.Ports[0].Port = 5432 }), v4(one), []string{
			"TCP 0.0.0.0:30080: 10.61.0.5:8080 masqueraded", "TCP 10.43.0.7:5432: 10.61.0.5:8080", "TCP 198.51.100.9:5432: 10.61.0.5:8080 masqueraded",
		}},
		"at the node's own port": {service(external(corev1.ServiceTypeLoadBalancer), ingressAt("198.51.100.9"), func(s *corev1.Service) { s.Spec.Ports[0].Port = 6443 }), v4(one), []string{
			"TCP 0.0.0.0:30080: 10.61.0.5:8080 masqueraded", "TCP 10.43.0.7:6443: 10.61.0.5:8080",
		}},
		"a load balancer at addresses of the cluster": {service(external(corev1.ServiceTypeLoadBalancer), ingressAt("10.43.0.1", "10.61.0.1", "192.0.2.7")), v4(one), []string{
			"TCP 0.0.0.0:30080: 10.61.0.5:8080 masqueraded", "TCP 10.43.0.7:80: 10.61.0.5:8080", "TCP 192.0.2.7:80: 10.61.0.5:8080 masqueraded",
		}},
		"a node port that is the node's own": {service(external(corev1.ServiceTypeNodePort), func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 6443 }), v4(one), []string{"TCP 10.43.0.7:80: 10.61.0.5:8080"}},
		"source ranges": {service(external(corev1.ServiceTypeLoadBalancer), func(s *corev1.Service) {
			s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24", " 10.0.0.0/8", "10.1.0.0/16", "fd00::/8", "nonsense"}
		}), nil, []string{
			"TCP 0.0.0.0:30080: rejected", "TCP 10.43.0.7:80: rejected elsewhere", "TCP 192.0.2.7:80: rejected of [10.0.0.0/8 203.0.113.0/24]",
		}},
		"hints of this zone":             {service(), v4(one+" zone=z1", two+" zone=z2"), []string{"TCP 10.43.0.7:80: 10.61.0.5:8080"}},
		"hints of other zones only":      {service(), v4(one+" zone=z3", two+" zone=z2"), []string{"TCP 10.43.0.7:80: 10.61.0.5:8080 10.61.0.6:8080"}},
		"one without a hint":             {service(), v4(one+" zone=z1", two), []string{"TCP 10.43.0.7:80: 10.61.0.5:8080 10.61.0.6:8080"}},
		"hints of this node":             {service(), v4(one+" zone=z1 node=here", two+" zone=z1 node=elsewhere"), []string{"TCP 10.43.0.7:80: 10.61.0.5:8080"}},
		"hints of other nodes, one zone": {service(), v4(one+" zone=z1 node=a", two+" zone=z2 node=b"), []string{"TCP 10.43.0.7:80: 10.61.0.5:8080"}},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{Service: c.service, Slices: c.slices, Node: testNode(), Loopback: map[Port]bool{{6, 5432}: true}}
			p := Of(in)
			if got := told(p); !slices.Equal(got, c.want) {
				t.Errorf("planned\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			for name, l := range p.Lists {
				if len(l.Endpoints) == 0 || !slices.IsSortedFunc(l.Endpoints, netip.AddrPort.Compare) {
					t.Errorf("list %s: %v", name, l.Endpoints)
				}
			}
			if again := Of(in); !reflect.DeepEqual(p, again) {
				t.Error("the same objects give another plan")
			}
		})
	}
}

func TestWhatElseIsPlanned(t *testing.T) {
	s := service(external(corev1.ServiceTypeLoadBalancer), localOutside, func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 31000 })
	p := Of(Input{Service: s, Slices: []*discoveryv1.EndpointSlice{slice(discoveryv1.AddressTypeIPv4, "10.61.0.5 here", "10.61.0.6 elsewhere", "10.61.0.7 here -ready +serving +terminating")}, Node: Node{Name: here}})
	if p.HealthCheck == nil || *p.HealthCheck != (HealthCheck{31000, 1}) {
		t.Errorf("health check %+v", p.HealthCheck)
	}
	want := map[LocalEndpoint]bool{{6, netip.MustParseAddrPort("10.61.0.5:8080")}: true}
	if !maps.Equal(p.Local, want) {
		t.Errorf("at this node %v", p.Local)
	}
	for _, l := range p.Lists {
		if !slices.Contains(l.Keep, netip.MustParseAddrPort("10.61.0.7:8080")) {
			t.Errorf("what answers still is not kept: %+v", l)
		}
	}
	s.Spec.LoadBalancerSourceRanges = []string{"nonsense"}
	if p := Of(Input{Service: s}); len(p.Faults) != 1 {
		t.Errorf("faults %v", p.Faults)
	}
}

// Whatever an EndpointSlice holds, a plan is made.
func FuzzEndpoints(f *testing.F) {
	f.Add("10.0.0.1", int32(80), true)
	f.Add("fe80::1%eth0", int32(-1), false)
	f.Fuzz(func(t *testing.T, address string, port int32, ready bool) {
		s := slice(discoveryv1.AddressTypeIPv4)
		s.Ports[0].Port = &port
		s.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}}
		for _, l := range Of(Input{Service: service(), Slices: []*discoveryv1.EndpointSlice{s}, Node: Node{Name: here}}).Lists {
			for _, e := range l.Endpoints {
				if !e.IsValid() || e.Port() == 0 {
					t.Errorf("endpoint %v", e)
				}
			}
		}
	})
}
