package servicelb

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// port is one that a service wants at the nodes' addresses.
type port struct {
	protocol corev1.Protocol
	number   int32
}

func (p port) String() string { return fmt.Sprintf("port %d/%s", p.number, p.protocol) }

// decision is what a service's status is to say: addresses, or why there are none.
type decision struct {
	addresses []string
	// refused says why, in words; empty: it is not refused. problem is the type of the condition that says so, reason its reason.
	refused, problem, reason string
}

// The conditions of services that have no address, and their reasons.
const (
	portsProblem       = corev1.LoadBalancerPortsError
	addressProblem     = "LoadBalancerAddressError"
	reasonPortInUse    = "PortInUse"
	reasonAddressInUse = "AddressInUse"
	reasonNotInRange   = "AddressNotInRange"
	reasonNoneFree     = "NoAddressFree"
)

var problems = []string{portsProblem, addressProblem}

// holder says who has a port of the nodes; empty: nobody.
type holder func(port) string

// inOrder are services in the order in which they get what they want: those that have something before those that have nothing yet, of these the elder first.
func inOrder(services []*corev1.Service) []*corev1.Service {
	all := slices.Clone(services)
	slices.SortFunc(all, func(a, b *corev1.Service) int {
		if x, y := assigned(a), assigned(b); x != y {
			if x {
				return -1
			}
			return 1
		}
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// share says which of the services are reached at the nodes' addresses. What a service has it keeps. others says who else has a port: it is asked of services that
// have nothing yet. It is pure.
func share(inOrder []*corev1.Service, nodes []*corev1.Node, others holder) map[*corev1.Service]decision {
	out := map[*corev1.Service]decision{}
	held := map[port]string{}
	for _, s := range inOrder {
		d := decision{}
		for _, p := range portsOf(s) {
			who := held[p]
			if who == "" && !assigned(s) {
				who = others(p)
			}
			if who != "" && d.refused == "" {
				d = decision{problem: portsProblem, reason: reasonPortInUse, refused: fmt.Sprintf("%s of the nodes is in use: by %s", p, who)}
			}
		}
		if d.refused == "" {
			for _, p := range portsOf(s) {
				held[p] = nameOf(s)
			}
			d.addresses = addresses(s, nodes)
		}
		out[s] = d
	}
	return out
}

// ours says whether a service is one that gets its addresses from this controller.
func ours(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.LoadBalancerClass == nil && s.DeletionTimestamp == nil
}

func assigned(s *corev1.Service) bool { return len(s.Status.LoadBalancer.Ingress) > 0 }

func portsOf(s *corev1.Service) (all []port) {
	for _, p := range s.Spec.Ports {
		all = append(all, port{p.Protocol, p.Port})
	}
	return all
}

// addresses are those of the nodes that are ready, or without any such, of all, in the service's families.
func addresses(s *corev1.Service, nodes []*corev1.Node) (out []string) {
	usable := slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool {
		_, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]
		return excluded || n.DeletionTimestamp != nil
	})
	if slices.ContainsFunc(usable, ready) {
		usable = slices.DeleteFunc(usable, func(n *corev1.Node) bool { return !ready(n) })
	}
	slices.SortFunc(usable, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, family := range s.Spec.IPFamilies {
		for _, n := range usable {
			for _, a := range of(n, family) {
				if !slices.Contains(out, a) {
					out = append(out, a)
				}
			}
		}
	}
	return out
}

func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// of are a node's addresses of a family that others reach: the external ones, or where there are none, the internal ones.
func of(n *corev1.Node, family corev1.IPFamily) (out []string) {
	for _, kind := range []corev1.NodeAddressType{corev1.NodeExternalIP, corev1.NodeInternalIP} {
		for _, a := range n.Status.Addresses {
			ip, err := netip.ParseAddr(a.Address)
			if a.Type == kind && err == nil && !ip.IsLoopback() && ip.Is4() == (family == corev1.IPv4Protocol) {
				out = append(out, a.Address)
			}
		}
		if len(out) > 0 {
			return out
		}
	}
	return nil
}
