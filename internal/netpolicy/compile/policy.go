package compile

import (
	"fmt"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// policy is a policy as it was understood.
type policy struct {
	source   *networkingv1.NetworkPolicy
	key      string
	selector labels.Selector
	// about says which directions it isolates its pods in, rules what may pass all the same.
	about [2]bool
	rules [2][]rule
}

// rule lets connections with some peers pass, at some ports.
type rule struct {
	anybody bool
	atoms   []string
	ports   ports
}

// atom is one peer that a policy names by labels.
type atom struct {
	key string
	// namespace is the policy's own where in is nil.
	namespace string
	in        labels.Selector
	pods      labels.Selector
}

func (a *atom) of(namespace string, of labels.Set) bool {
	if a.in == nil {
		return a.namespace == namespace
	}
	return a.in.Matches(of)
}

// parsed is all that policies say in one direction.
type parsed struct {
	atoms  map[string]*atom
	blocks map[string]block
	// names are ports by name of which the peer knows the numbers.
	names map[name]bool
}

// understood reads a policy. What it cannot read of it lets nothing pass.
func understood(p *networkingv1.NetworkPolicy, all *[2]parsed) (_ *policy, problems []Problem) {
	out := &policy{source: p, key: p.Namespace + "/" + p.Name, about: about(&p.Spec)}
	wrong := func(at string, err error) {
		problems = append(problems, Problem{p, fmt.Sprintf("%s: %v", at, err)})
	}
	var err error
	if out.selector, err = metav1.LabelSelectorAsSelector(&p.Spec.PodSelector); err != nil {
		wrong("spec.podSelector", fmt.Errorf("%w; all pods of the namespace are isolated", err))
		out.selector, out.rules = labels.Everything(), [2][]rule{}
		return out, problems
	}
	for i, r := range p.Spec.Ingress {
		read, err := ruleOf(p.Namespace, r.From, r.Ports, &all[Ingress])
		if err != nil {
			wrong(fmt.Sprintf("spec.ingress[%d]", i), err)
			continue
		}
		out.rules[Ingress] = append(out.rules[Ingress], read)
	}
	for i, r := range p.Spec.Egress {
		read, err := ruleOf(p.Namespace, r.To, r.Ports, &all[Egress])
		if err != nil {
			wrong(fmt.Sprintf("spec.egress[%d]", i), err)
			continue
		}
		for _, n := range read.ports.named {
			all[Egress].names[n] = true
		}
		out.rules[Egress] = append(out.rules[Egress], read)
	}
	return out, problems
}

// about: a policy that does not say what it is about is about ingress, and about egress if it has rules for that.
func about(s *networkingv1.NetworkPolicySpec) [2]bool {
	if len(s.PolicyTypes) == 0 {
		return [2]bool{Ingress: true, Egress: len(s.Egress) > 0}
	}
	return [2]bool{
		Ingress: slices.Contains(s.PolicyTypes, networkingv1.PolicyTypeIngress),
		Egress:  slices.Contains(s.PolicyTypes, networkingv1.PolicyTypeEgress),
	}
}

func ruleOf(namespace string, peers []networkingv1.NetworkPolicyPeer, list []networkingv1.NetworkPolicyPort, all *parsed) (r rule, err error) {
	if r.ports, err = parsePorts(list); err != nil {
		return rule{}, err
	}
	r.anybody = len(peers) == 0
	for i := range peers {
		key, err := peerOf(namespace, &peers[i], all)
		if err != nil {
			return rule{}, fmt.Errorf("peer %d: %w", i, err)
		}
		r.atoms = append(r.atoms, key)
	}
	return r, nil
}

// peerOf notes a peer, and returns its name.
func peerOf(namespace string, p *networkingv1.NetworkPolicyPeer, all *parsed) (string, error) {
	if p.IPBlock != nil {
		b, err := parseBlock(p.IPBlock)
		if err != nil {
			return "", err
		}
		all.blocks[b.atom] = b
		return b.atom, nil
	}
	if p.PodSelector == nil && p.NamespaceSelector == nil {
		return "", fmt.Errorf("it has neither a selector nor an ipBlock")
	}
	a := &atom{namespace: namespace, pods: labels.Everything()}
	var err error
	if p.PodSelector != nil {
		if a.pods, err = metav1.LabelSelectorAsSelector(p.PodSelector); err != nil {
			return "", fmt.Errorf("podSelector: %w", err)
		}
	}
	where := "pods of " + namespace
	if p.NamespaceSelector != nil {
		if a.in, err = metav1.LabelSelectorAsSelector(p.NamespaceSelector); err != nil {
			return "", fmt.Errorf("namespaceSelector: %w", err)
		}
		where = fmt.Sprintf("pods where %q", a.in.String())
	}
	a.key = fmt.Sprintf("%s with %q", where, a.pods.String())
	all.atoms[a.key] = a
	return a.key, nil
}
