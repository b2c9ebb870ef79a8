package binder

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/pods"
)

// company is where the pods are by which a pod may run, or rather runs, in some domains and not in others. Who is ending counts until it has ended.
type company struct {
	// near are the required terms of its affinity: it must be near to somebody whom all of them mean.
	near []pods.PodTerm
	// gathered are the domains in which there are such pods.
	gathered domains
	// first: there are none anywhere, but the pod is one itself. It begins the group, in any domain.
	first bool
	// shunned are the domains of those that the pod must not be near to, shunning of those that must not have it near.
	shunned, shunning domains
	// liking is how much the pod and those of a domain would rather be together; below zero: apart.
	liking map[domain]int64
}

// company looks at the pods for the sake of one: at all of them if it says something about others, else at those that do.
func (c cluster) company(pod *corev1.Pod) (of company) {
	own := slices.Collect(pods.PodTerms(&pod.Spec))
	for _, term := range own {
		if term.Required && !term.Anti {
			of.near = append(of.near, term)
		}
	}
	for i := range c.places {
		at := &c.places[i]
		if len(own) > 0 {
			for _, other := range at.pods {
				of.add(c.namespaces, pod, own, other, at.node)
			}
		}
		for other := range at.holdings().social {
			of.addTheirs(c.namespaces, pod, other.Pod, at.node)
		}
	}
	of.first = len(of.gathered) == 0 && of.means(c.namespaces, pod, pod)
	return of
}

// means says whether all of near mean another pod.
func (of *company) means(in namespaces, pod, other *corev1.Pod) bool {
	for _, term := range of.near {
		if !in.means(pod, term.PodAffinityTerm, other) {
			return false
		}
	}
	return len(of.near) > 0
}

// add is about what the pod says of another one.
func (of *company) add(in namespaces, pod *corev1.Pod, own []pods.PodTerm, other *corev1.Pod, node *corev1.Node) {
	if of.means(in, pod, other) {
		for _, term := range of.near {
			of.gathered.add(node, term.TopologyKey)
		}
	}
	for _, term := range own {
		switch {
		case term.Required && !term.Anti, !in.means(pod, term.PodAffinityTerm, other):
		case term.Required:
			of.shunned.add(node, term.TopologyKey)
		default:
			of.like(node, term)
		}
	}
}

// addTheirs is about what another one says of the pod.
func (of *company) addTheirs(in namespaces, pod, other *corev1.Pod, node *corev1.Node) {
	for term := range pods.PodTerms(&other.Spec) {
		switch {
		case !in.means(other, term.PodAffinityTerm, pod):
		case term.Required && term.Anti:
			of.shunning.add(node, term.TopologyKey)
		default:
			of.like(node, term)
		}
	}
}

// like counts a term about somebody on a node. One that must be near to the pod, and is there without it, weighs as little as can be.
func (of *company) like(node *corev1.Node, term pods.PodTerm) {
	value, ok := node.Labels[term.TopologyKey]
	if !ok {
		return
	}
	weight := int64(max(term.Weight, 1))
	if term.Anti {
		weight = -weight
	}
	if of.liking == nil {
		of.liking = map[domain]int64{}
	}
	of.liking[domain{term.TopologyKey, value}] += weight
}

// companyIsRight is the judge of which pods have to be near, and which must not be.
func companyIsRight(known *survey) verdict {
	return func(at place) []lack { return lacking(known.company.lack(at.node)) }
}

// lack is why the pod cannot run on a node for the sake of others; empty: it can.
func (of *company) lack(node *corev1.Node) string {
	for _, term := range of.near {
		if value, ok := node.Labels[term.TopologyKey]; !ok || !of.first && !of.gathered[domain{term.TopologyKey, value}] {
			return "node(s) didn't match pod affinity rules"
		}
	}
	switch {
	case of.shunned.have(node):
		return "node(s) didn't match pod anti-affinity rules"
	case of.shunning.have(node):
		return "node(s) didn't satisfy existing pods anti-affinity rules"
	}
	return ""
}

// likes is how much the pod and those near a node would rather be together.
func (of *company) likes(node *corev1.Node) (sum int64) {
	if len(of.liking) > 0 {
		for key, value := range node.Labels {
			sum += of.liking[domain{key, value}]
		}
	}
	return sum
}

// domains is a set.
type domains map[domain]bool

// add adds the domain of a node, if it is in one.
func (d *domains) add(node *corev1.Node, key string) {
	value, ok := node.Labels[key]
	if !ok {
		return
	}
	if *d == nil {
		*d = domains{}
	}
	(*d)[domain{key, value}] = true
}

// have says whether a node is in one of them.
func (d domains) have(node *corev1.Node) bool {
	if len(d) > 0 {
		for key, value := range node.Labels {
			if d[domain{key, value}] {
				return true
			}
		}
	}
	return false
}
