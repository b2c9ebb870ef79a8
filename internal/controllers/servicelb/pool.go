package servicelb

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/kit/iprange"
)

// allot gives each service an address of its own of each of its families of which there are ranges. What a service has it keeps, unless it asks for another one;
// the others get the lowest that is free, in their order. Addresses of nodes nobody gets. It is pure.
func allot(inOrder []*corev1.Service, nodes []*corev1.Node, ranges []iprange.Range) map[*corev1.Service]decision {
	p := &pool{ranges: ranges, held: map[netip.Addr]string{}, has: map[*corev1.Service]map[bool]netip.Addr{}, lowest: make([]netip.Addr, len(ranges))}
	for i, r := range ranges {
		p.lowest[i] = r.First
	}
	for _, n := range nodes {
		for _, a := range n.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil {
				p.held[ip] = "node " + n.Name
			}
		}
	}
	for _, s := range inOrder {
		p.keep(s)
	}
	out := map[*corev1.Service]decision{}
	for _, s := range inOrder {
		out[s] = p.decide(s)
	}
	return out
}

// pool is what of the ranges is whose.
type pool struct {
	ranges []iprange.Range
	held   map[netip.Addr]string                   // by whom
	has    map[*corev1.Service]map[bool]netip.Addr // of IPv4, or not
	lowest []netip.Addr                            // of each range: those before it are held
}

func (p *pool) give(s *corev1.Service, a netip.Addr) {
	if p.has[s] == nil {
		p.has[s] = map[bool]netip.Addr{}
	}
	p.held[a], p.has[s][a.Is4()] = nameOf(s), a
}

// keep has a service keep what its status says.
func (p *pool) keep(s *corev1.Service) {
	wanted, asks := asked(s)
	for _, i := range s.Status.LoadBalancer.Ingress {
		a, err := netip.ParseAddr(i.IP)
		if err != nil || !iprange.Contain(p.ranges, a) || p.held[a] != "" || p.has[s][a.Is4()].IsValid() || asks && wanted.Is4() == a.Is4() && wanted != a {
			continue
		}
		for _, f := range s.Spec.IPFamilies {
			if a.Is4() == (f == corev1.IPv4Protocol) {
				p.give(s, a)
			}
		}
	}
}

// decide gives a service what it has not yet: of all its families or nothing, so that one that is refused holds nothing from others.
func (p *pool) decide(s *corev1.Service) (d decision) {
	wanted, asks := asked(s)
	refuse := func(reason, format string, args ...any) decision {
		return decision{problem: addressProblem, reason: reason, refused: fmt.Sprintf(format, args...)}
	}
	if text := s.Spec.LoadBalancerIP; text != "" && !asks {
		return refuse(reasonNotInRange, "loadBalancerIP %q is no address", text)
	}
	var given []netip.Addr
	for _, f := range s.Spec.IPFamilies {
		is4 := f == corev1.IPv4Protocol
		if p.has[s][is4].IsValid() {
			d.addresses = append(d.addresses, p.has[s][is4].String())
			continue
		}
		a := wanted
		switch {
		case asks && wanted.Is4() == is4 && !iprange.Contain(p.ranges, wanted):
			return refuse(reasonNotInRange, "loadBalancerIP %s is in none of the ranges %v", wanted, p.ranges)
		case asks && wanted.Is4() == is4 && p.held[wanted] != "":
			return refuse(reasonAddressInUse, "loadBalancerIP %s is in use: by %s", wanted, p.held[wanted])
		case !asks || wanted.Is4() != is4:
			var any bool
			if a, any = p.free(is4); !any {
				continue
			}
			if !a.IsValid() {
				return refuse(reasonNoneFree, "all %s addresses of the ranges %v are in use", f, p.ranges)
			}
		}
		given = append(given, a)
		d.addresses = append(d.addresses, a.String())
	}
	for _, a := range given {
		p.give(s, a)
	}
	if len(d.addresses) == 0 {
		return refuse(reasonNotInRange, "none of the ranges %v is of the service's families %v", p.ranges, s.Spec.IPFamilies)
	}
	return d
}

// free is the lowest address of a family that nobody has; any says that there are ranges of it.
func (p *pool) free(is4 bool) (a netip.Addr, any bool) {
	for i, r := range p.ranges {
		if r.Is4() != is4 {
			continue
		}
		any = true
		for r.Contains(p.lowest[i]) && p.held[p.lowest[i]] != "" {
			p.lowest[i] = p.lowest[i].Next()
		}
		if r.Contains(p.lowest[i]) {
			return p.lowest[i], true
		}
	}
	return netip.Addr{}, any
}

// asked is the address that a service asks for.
func asked(s *corev1.Service) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s.Spec.LoadBalancerIP)
	return a, err == nil
}

func nameOf(s *corev1.Service) string { return fmt.Sprintf("service %s/%s", s.Namespace, s.Name) }
