package compile

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// oracle says of one packet what the API's documentation says, policy by policy and peer by peer, without any class.
type oracle struct {
	policies   []*networkingv1.NetworkPolicy
	namespaces map[string]labels.Set
	pods       map[netip.Addr]*Pod
}

func (o *oracle) passes(from, to netip.Addr, protocol byte, port uint16) bool {
	if from == to {
		return true
	}
	return o.judge(Egress, from, to, to, protocol, port) && o.judge(Ingress, to, from, to, protocol, port)
}

func (o *oracle) judge(d Direction, self, peer, to netip.Addr, protocol byte, port uint16) bool {
	pod := o.pods[self]
	if pod == nil || !pod.Local {
		return true
	}
	isolated := false
	for _, p := range o.policies {
		if p.Namespace != pod.Kind.Namespace || !about(&p.Spec)[d] || !selects(&p.Spec.PodSelector, pod.Kind.Labels) {
			continue
		}
		isolated = true
		if d == Ingress {
			for _, r := range p.Spec.Ingress {
				if o.peers(p.Namespace, r.From, peer) && o.ports(r.Ports, to, protocol, port) {
					return true
				}
			}
			continue
		}
		for _, r := range p.Spec.Egress {
			if o.peers(p.Namespace, r.To, peer) && o.ports(r.Ports, to, protocol, port) {
				return true
			}
		}
	}
	return !isolated
}

func selects(s *metav1.LabelSelector, set labels.Set) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(set)
}

func (o *oracle) peers(namespace string, list []networkingv1.NetworkPolicyPeer, a netip.Addr) bool {
	pod := o.pods[a]
	for _, p := range list {
		switch {
		case p.IPBlock != nil:
			inside := netip.MustParsePrefix(p.IPBlock.CIDR).Contains(a)
			for _, e := range p.IPBlock.Except {
				inside = inside && !netip.MustParsePrefix(e).Contains(a)
			}
			if inside {
				return true
			}
		case pod == nil:
		case p.NamespaceSelector == nil && pod.Kind.Namespace != namespace:
		case p.NamespaceSelector != nil && !selects(p.NamespaceSelector, o.namespaces[pod.Kind.Namespace]):
		case p.PodSelector != nil && !selects(p.PodSelector, pod.Kind.Labels):
		default:
			return true
		}
	}
	return len(list) == 0
}

func (o *oracle) ports(list []networkingv1.NetworkPolicyPort, to netip.Addr, protocol byte, port uint16) bool {
	for _, p := range list {
		if Protocols[*p.Protocol] != protocol {
			continue
		}
		switch {
		case p.Port == nil:
			return true
		case p.Port.Type == intstr.String:
			if pod := o.pods[to]; pod != nil {
				for _, n := range pod.Kind.Ports {
					if n.Name == p.Port.StrVal && n.Protocol == protocol && n.Number == port {
						return true
					}
				}
			}
		case p.EndPort == nil && uint16(p.Port.IntVal) == port, p.EndPort != nil && uint16(p.Port.IntVal) <= port && port <= uint16(*p.EndPort):
			return true
		}
	}
	return len(list) == 0
}

// chance makes clusters and policies.
type chance struct{ *rand.Rand }

func pick[T any](c chance, of ...T) T { return of[c.IntN(len(of))] }

func (c chance) selector() *metav1.LabelSelector {
	switch c.IntN(4) {
	case 0:
		return &metav1.LabelSelector{}
	case 1:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: pick(c, "a", "b"), Operator: pick(c, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn), Values: []string{pick(c, "x", "y", "z")}}}}
	case 2:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: pick(c, "a", "b"), Operator: metav1.LabelSelectorOpExists}}}
	}
	return &metav1.LabelSelector{MatchLabels: map[string]string{pick(c, "a", "b"): pick(c, "x", "y", "z")}}
}

func (c chance) labels() map[string]string {
	set := map[string]string{}
	for _, key := range []string{"a", "b"} {
		if c.IntN(3) > 0 {
			set[key] = pick(c, "x", "y", "z")
		}
	}
	return set
}

func (c chance) block() *networkingv1.IPBlock {
	if c.IntN(4) == 0 {
		return &networkingv1.IPBlock{CIDR: "fd00::/64", Except: []string{fmt.Sprintf("fd00::%x/127", c.IntN(8)*2)}}
	}
	from := netip.AddrFrom4([4]byte{10, 0, 0, byte(c.IntN(32))})
	b := &networkingv1.IPBlock{CIDR: netip.PrefixFrom(from, pick(c, 0, 24, 27, 28, 30, 32)).Masked().String()}
	if whole := netip.MustParsePrefix(b.CIDR); whole.Bits() < 30 {
		for range c.IntN(3) {
			except := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(c.IntN(32))}), 30+c.IntN(3)).Masked()
			if whole.Contains(except.Addr()) {
				b.Except = append(b.Except, except.String())
			}
		}
	}
	return b
}

func (c chance) peers() (all []networkingv1.NetworkPolicyPeer) {
	for range c.IntN(3) {
		p := networkingv1.NetworkPolicyPeer{}
		switch c.IntN(4) {
		case 0:
			p.IPBlock = c.block()
		case 1:
			p.NamespaceSelector = c.selector()
		case 2:
			p.NamespaceSelector, p.PodSelector = c.selector(), c.selector()
		default:
			p.PodSelector = c.selector()
		}
		all = append(all, p)
	}
	return all
}

func (c chance) ports() (all []networkingv1.NetworkPolicyPort) {
	for range c.IntN(3) {
		protocol := pick(c, corev1.ProtocolTCP, corev1.ProtocolUDP)
		p := networkingv1.NetworkPolicyPort{Protocol: &protocol}
		switch c.IntN(4) {
		case 0:
		case 1:
			port := intstr.FromString(pick(c, "one", "two"))
			p.Port = &port
		default:
			port := intstr.FromInt32(int32(1 + c.IntN(5)))
			p.Port = &port
			if end := port.IntVal + int32(c.IntN(3)); end > port.IntVal {
				p.EndPort = &end
			}
		}
		all = append(all, p)
	}
	return all
}

func (c chance) policy(namespace, name string) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: networkingv1.NetworkPolicySpec{PodSelector: *c.selector()}}
	for range c.IntN(3) {
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: c.peers(), Ports: c.ports()})
	}
	for range c.IntN(3) {
		p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: c.peers(), Ports: c.ports()})
	}
	p.Spec.PolicyTypes = pick(c, nil, []networkingv1.PolicyType{"Ingress"}, []networkingv1.PolicyType{"Egress"}, []networkingv1.PolicyType{"Ingress", "Egress"})
	return p
}

func (c chance) pod(i int) Pod {
	var ports []corev1.ContainerPort
	for _, name := range []string{"one", "two"} {
		if c.IntN(2) == 0 {
			ports = append(ports, corev1.ContainerPort{Name: name, Protocol: pick(c, corev1.ProtocolTCP, corev1.ProtocolUDP), ContainerPort: int32(1 + c.IntN(5))})
		}
	}
	k := KindOf(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: pick(c, "n1", "n2", "n3"), Labels: c.labels()},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Ports: ports}}},
	})
	local := c.IntN(3) > 0
	return Pod{Key: fmt.Sprint("u", i), Kind: k, Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), netip.MustParseAddr(fmt.Sprintf("fd00::%x", i))}, Local: local}
}

// TestAsTheDocumentationSays compares what is compiled with what the documentation says, for clusters and policies as chance makes them, which change under way.
func TestAsTheDocumentationSays(t *testing.T) {
	for seed := range uint64(150) {
		c := chance{rand.New(rand.NewPCG(seed, 1))}
		compiler := New()
		namespaces := map[string]labels.Set{"n1": c.labels(), "n2": c.labels(), "n3": c.labels()}
		var pods []Pod
		for i := range 8 {
			pods = append(pods, c.pod(2+i*3))
		}
		var policies []*networkingv1.NetworkPolicy
		for step := range 4 {
			switch i := c.IntN(len(pods)); {
			case step == 0 || c.IntN(2) == 0:
				policies = append(policies, c.policy(pick(c, "n1", "n2", "n3"), fmt.Sprint("p", step)), c.policy("n1", fmt.Sprint("q", step)))
				var list []Namespace
				for name, set := range namespaces {
					list = append(list, Namespace{name, set})
				}
				compiler.Learn(policies, list)
			default:
				pods[i] = c.pod(2 + i*3)
			}
			r := compiler.Compile(pods)
			o := &oracle{policies, namespaces, map[netip.Addr]*Pod{}}
			for i := range pods {
				for _, a := range pods[i].Addresses {
					o.pods[a] = &pods[i]
				}
			}
			compare(t, seed, &r, o)
		}
		if t.Failed() {
			return
		}
	}
}

func compare(t *testing.T, seed uint64, r *Rules, o *oracle) {
	t.Helper()
	for i := range 32 {
		for j := range 32 {
			for _, form := range []string{"10.0.0.%d", "fd00::%x"} {
				from, to := fmt.Sprintf(form, i), fmt.Sprintf(form, j)
				protocol, port := []byte{tcp, udp, icmp}[(i+j)%3], uint16((i*7+j)%8)
				if got, want := passes(r, from, to, protocol, port), o.passes(netip.MustParseAddr(from), netip.MustParseAddr(to), protocol, port); got != want {
					t.Fatalf("seed %d: %s > %s %d/%d passes %v, want %v\n%+v", seed, from, to, protocol, port, got, want, o.policies)
				}
			}
		}
	}
}
