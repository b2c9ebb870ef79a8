package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"monopod.dev/monopod/internal/kit/iprange"
)

const (
	// MaxEndpoints is how many endpoints of a list get connections.
	MaxEndpoints = 1<<14 - 1
	// MaxAffinity is the longest time that the API allows, in seconds.
	MaxAffinity = 86400
	// defaultAffinity is the API's.
	defaultAffinity = 10800
)

// protocols are IP's numbers of those that a service can have.
var protocols = map[corev1.Protocol]uint8{corev1.ProtocolTCP: 6, corev1.ProtocolUDP: 17, corev1.ProtocolSCTP: 132}

// Of makes the plan for a service.
func Of(in Input) (p Service) {
	s := in.Service
	if s == nil || !proxied(s) {
		return p
	}
	p = Service{Inside: map[Front]Target{}, Outside: map[Front]Target{}, Ranges: map[Front][]netip.Prefix{}, Lists: map[string]List{}, Local: map[LocalEndpoint]bool{}}
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		clusterIPs := p.addresses("clusterIPs", clusterIPs(s), family)
		if len(clusterIPs) == 0 {
			continue // not of this family
		}
		p.Addresses = append(p.Addresses, clusterIPs...)
		w := &work{in: in, p: &p, family: family, clusterIPs: clusterIPs}
		w.external = p.permitted(in.Node, p.addresses("externalIPs", s.Spec.ExternalIPs, family))
		if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
			w.balanced = p.open(in.Node, p.addresses("status.loadBalancer.ingress", ingress(s), family))
			for _, a := range w.balanced { // one that a node has may be another's: what others have there is not ours to refuse
				if iprange.Contain(in.Node.Balancers, a) {
					p.Addresses = append(p.Addresses, a)
					if Announcer(in, family, a) == in.Node.Name {
						p.Announced = append(p.Announced, a)
					}
				}
			}
			w.ranges, w.limited = p.sourceRanges(s.Spec.LoadBalancerSourceRanges, family)
		}
		for i := range s.Spec.Ports {
			w.port(&s.Spec.Ports[i])
		}
	}
	p.forgetUnused()
	p.healthCheck(in)
	return p
}

// forgetUnused takes lists away that nothing leads to.
func (p *Service) forgetUnused() {
	used := map[string]bool{}
	for _, targets := range []map[Front]Target{p.Inside, p.Outside} {
		for _, t := range targets {
			used[t.List] = true
		}
	}
	for name := range p.Lists {
		if !used[name] {
			delete(p.Lists, name)
		}
	}
}

// proxied says whether the service is one that packets are sent to endpoints for, by this proxy.
func proxied(s *corev1.Service) bool {
	if _, other := s.Labels["service.kubernetes.io/service-proxy-name"]; other {
		return false
	}
	return s.Spec.Type != corev1.ServiceTypeExternalName && s.Spec.ClusterIP != "" && s.Spec.ClusterIP != corev1.ClusterIPNone
}

func clusterIPs(s *corev1.Service) []string {
	if len(s.Spec.ClusterIPs) > 0 {
		return s.Spec.ClusterIPs
	}
	return []string{s.Spec.ClusterIP}
}

// ingress are the addresses that packets keep on their way to the node. Those of the mode Proxy are somebody else's, who answers there.
func ingress(s *corev1.Service) (all []string) {
	for _, i := range s.Status.LoadBalancer.Ingress {
		if i.IP != "" && deref(i.IPMode, corev1.LoadBalancerIPModeVIP) == corev1.LoadBalancerIPModeVIP {
			all = append(all, i.IP)
		}
	}
	return all
}

// addresses reads those of the family.
func (p *Service) addresses(field string, all []string, family discoveryv1.AddressType) (out []netip.Addr) {
	for _, s := range all {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" || a.IsUnspecified() || a.IsLoopback() {
			p.fault("%s: %q is no address that a service can have", field, s)
			continue
		}
		if a = a.Unmap(); a.Is4() == (family == discoveryv1.AddressTypeIPv4) && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// permitted are those of externalIPs that the node's administrator lets services have: whoever may write a service would be sent what is for any address that it names,
// by pods and by the node itself (CVE-2020-8554).
func (p *Service) permitted(node Node, all []netip.Addr) (out []netip.Addr) {
	for _, a := range all {
		switch {
		case slices.Contains(node.Addresses, a):
			p.ignore("externalIPs: %s is an address of this node", a)
		case iprange.Contain(node.Closed, a):
			p.ignore("externalIPs: %s is an address of pods, of services or of the node", a)
		case !iprange.Contain(node.External, a):
			p.ignore("externalIPs: %s is in no range that this node permits (services.externalIPs)", a)
		default:
			out = append(out, a)
		}
	}
	return out
}

// open are those of a load balancer that are not others' in any case.
func (p *Service) open(node Node, all []netip.Addr) (out []netip.Addr) {
	for _, a := range all {
		if iprange.Contain(node.Closed, a) {
			p.ignore("status.loadBalancer.ingress: %s is an address of pods, of services or of the node", a)
			continue
		}
		out = append(out, a)
	}
	return out
}

// loopback is where the machine's own programs look for what it serves.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// sourceRanges reads those of the family; limited says that there are any, of whichever family.
func (p *Service) sourceRanges(all []string, family discoveryv1.AddressType) (out []netip.Prefix, limited bool) {
	for _, s := range all {
		r, err := netip.ParsePrefix(strings.TrimSpace(s))
		if err != nil {
			p.fault("loadBalancerSourceRanges: %q is no range", s)
			continue
		}
		if r.Addr().Is4() == (family == discoveryv1.AddressTypeIPv4) {
			out = append(out, r.Masked())
		}
	}
	return disjoint(out), len(all) > 0
}

// disjoint leaves out ranges that lie in others.
func disjoint(all []netip.Prefix) (out []netip.Prefix) {
	slices.SortFunc(all, func(a, b netip.Prefix) int {
		if c := a.Bits() - b.Bits(); c != 0 {
			return c
		}
		return a.Addr().Compare(b.Addr())
	})
	for _, r := range all {
		if !slices.ContainsFunc(out, func(o netip.Prefix) bool { return o.Overlaps(r) }) {
			out = append(out, r)
		}
	}
	return out
}

func (p *Service) fault(format string, args ...any) {
	if f := fmt.Sprintf(format, args...); !slices.Contains(p.Faults, f) {
		p.Faults = append(p.Faults, f)
	}
}

func (p *Service) ignore(format string, args ...any) {
	p.fault(format, args...)
	if said := p.Faults[len(p.Faults)-1]; !slices.Contains(p.Ignored, said) {
		p.Ignored = append(p.Ignored, said)
	}
}

// work is a service in one family.
type work struct {
	in         Input
	p          *Service
	family     discoveryv1.AddressType
	clusterIPs []netip.Addr
	external   []netip.Addr // spec.externalIPs
	balanced   []netip.Addr // of the load balancer
	ranges     []netip.Prefix
	limited    bool
}

// port plans one port.
func (w *work) port(port *corev1.ServicePort) {
	s := w.in.Service
	protocol, ok := protocols[port.Protocol]
	if !ok || port.Port < 1 || port.Port > 65535 {
		w.p.fault("port %d/%s is none that can be served", port.Port, port.Protocol)
		return
	}
	all := endpointsOf(w.in, port.Name, string(port.Protocol), w.family)
	c := choose(all, w.in.Node)
	name := fmt.Sprintf("%s/%s:%d/%s/%s", s.Namespace, s.Name, port.Port, port.Protocol, w.family)
	cluster := w.list(name, protocol, c.cluster, c.anywhere, all)
	local := w.list(name+"/local", protocol, c.local, c.anywhere, all)

	inside := cluster
	if deref(s.Spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster) == corev1.ServiceInternalTrafficPolicyLocal {
		inside = local
	}
	if inside.Action == Reject {
		inside.Action = RejectElsewhere
	}
	for _, ip := range w.clusterIPs {
		w.p.Inside[Front{protocol, ip, uint16(port.Port)}] = inside
	}

	var fronts []Front
	for _, ip := range w.external {
		fronts = append(fronts, Front{protocol, ip, uint16(port.Port)})
	}
	for _, ip := range w.balanced {
		f := Front{protocol, ip, uint16(port.Port)}
		if own := slices.Contains(w.in.Node.Addresses, ip); own && w.in.Node.OwnPorts[Port{protocol, f.Port}] {
			w.p.ignore("port %d of %s: the node itself serves there", f.Port, ip)
			continue
		} else if own && ip.Is4() && !w.limited && !w.in.Loopback[Port{protocol, f.Port}] {
			// The machine's own programs ask their loopback address, as they do at node ports. There is nothing of the kind with IPv6.
			w.p.Inside[Front{protocol, loopback, f.Port}] = Target{Action: cluster.Action, List: cluster.List, Masquerade: cluster.Action == Balance}
		}
		if fronts = append(fronts, f); w.limited {
			w.p.Ranges[f] = w.ranges
		}
	}
	if w.in.Node.OwnPorts[Port{protocol, uint16(port.NodePort)}] {
		w.p.ignore("node port %d: the node itself serves there", port.NodePort)
	} else if port.NodePort > 0 && port.NodePort <= 65535 && (s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer) {
		fronts = append(fronts, Front{protocol, w.everywhere(), uint16(port.NodePort)})
	}
	for _, f := range fronts {
		if s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
			w.p.Inside[f], w.p.Outside[f] = cluster, local
			continue
		}
		w.p.Inside[f] = Target{Action: cluster.Action, List: cluster.List, Masquerade: cluster.Action == Balance}
	}
	w.used(protocol, c)
}

func (w *work) everywhere() netip.Addr {
	if w.family == discoveryv1.AddressTypeIPv6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// list is the target of the chosen ones.
func (w *work) list(name string, protocol uint8, chosen []endpoint, anywhere bool, all []endpoint) Target {
	switch {
	case len(chosen) == 0 && anywhere:
		return Target{Action: Drop}
	case len(chosen) == 0:
		return Target{Action: Reject}
	case len(chosen) > MaxEndpoints:
		w.p.fault("%s: %d of %d endpoints get connections", name, MaxEndpoints, len(chosen))
		chosen = chosen[:MaxEndpoints]
	}
	l := List{Protocol: protocol}
	for _, e := range chosen {
		l.Endpoints = append(l.Endpoints, e.at)
	}
	for _, e := range all {
		if _, in := slices.BinarySearchFunc(l.Endpoints, e.at, netip.AddrPort.Compare); e.serving && !in {
			l.Keep = append(l.Keep, e.at)
		}
	}
	if s := w.in.Service; s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		l.Affinity = defaultAffinity
		if c := s.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil {
			l.Affinity = uint32(min(max(deref(c.ClientIP.TimeoutSeconds, defaultAffinity), 1), MaxAffinity))
		}
	}
	w.p.Lists[name] = l
	return Target{List: name}
}

// used notes which endpoints at this node get connections.
func (w *work) used(protocol uint8, c choice) {
	for _, e := range append(slices.Clone(c.cluster), c.local...) {
		if e.local {
			w.p.Local[LocalEndpoint{protocol, e.at}] = true
		}
	}
}

// healthCheck says what a load balancer is told.
func (p *Service) healthCheck(in Input) {
	s := in.Service
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer || s.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal || s.Spec.HealthCheckNodePort <= 0 {
		return
	}
	ready := map[string]bool{}
	for _, slice := range in.Slices {
		for i := range slice.Endpoints {
			if e, ok := parse(&slice.Endpoints[i], 1, in.Node.Name); ok && e.local && e.ready {
				ready[e.at.Addr().String()] = true
			}
		}
	}
	p.HealthCheck = &HealthCheck{Port: uint16(s.Spec.HealthCheckNodePort), Local: len(ready)}
}
