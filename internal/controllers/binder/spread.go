package binder

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/controllers/owned"
)

// spread is how those that a constraint of a pod is about are spread.
type spread struct {
	*corev1.TopologySpreadConstraint
	// counts are their numbers, by the value of the topology key, in the domains that count for the constraint: 0 where there are none of them.
	counts map[string]int32
	// least is the number that those of others are held against.
	least int32
	// self is 1 where the pod is one of them, too.
	self int32
}

// spreads are those of a pod's constraints that are to be kept in one way. Nodes without one of their topology keys do not count, and who is ending does
// not either: it makes room.
func (c cluster) spreads(pod *corev1.Pod, when corev1.UnsatisfiableConstraintAction) (all []spread) {
	for i := range pod.Spec.TopologySpreadConstraints {
		if constraint := &pod.Spec.TopologySpreadConstraints[i]; constraint.WhenUnsatisfiable == when {
			all = append(all, spread{TopologySpreadConstraint: constraint, counts: map[string]int32{}})
		}
	}
	if len(all) == 0 {
		return nil
	}
	for _, at := range c.places {
		if !inAll(all, at.node) {
			continue
		}
		affine := selectorMatches(pod, at) == ""
		tolerated := cmp.Or(nodeIsReady(pod, at), nodeIsSchedulable(pod, at), taintsAreTolerated(pod, at)) == ""
		for i := range all {
			if s := &all[i]; (affine || !honours(s.NodeAffinityPolicy, true)) && (tolerated || !honours(s.NodeTaintsPolicy, false)) {
				s.counts[at.node.Labels[s.TopologyKey]] += s.count(pod, at.pods)
			}
		}
	}
	for i := range all {
		s := &all[i]
		s.self = s.count(pod, []*corev1.Pod{pod})
		if len(s.counts) > 0 && (s.MinDomains == nil || len(s.counts) >= int(*s.MinDomains)) { // else there are domains to come, which are empty
			s.least = slices.Min(slices.Collect(maps.Values(s.counts)))
		}
	}
	return all
}

// inAll says whether a node is in a domain of each of the constraints.
func inAll(all []spread, node *corev1.Node) bool {
	for i := range all {
		if _, ok := node.Labels[all[i].TopologyKey]; !ok {
			return false
		}
	}
	return true
}

// honours says whether nodes that a pod could not have anyhow are left out of a constraint.
func honours(policy *corev1.NodeInclusionPolicy, otherwise bool) bool {
	if policy == nil {
		return otherwise
	}
	return *policy == corev1.NodeInclusionPolicyHonor
}

// count is how many pods the constraint of a pod is about.
func (s *spread) count(pod *corev1.Pod, others []*corev1.Pod) (n int32) {
	for _, other := range others {
		if other.Namespace == pod.Namespace && other.DeletionTimestamp == nil && owned.Selects(s.LabelSelector, other.Labels) {
			n++
		}
	}
	return n
}

// spreadsAreKept is the judge of the constraints that have to be kept.
func spreadsAreKept(known *survey) verdict {
	spreads := known.in.spreads(known.pod, corev1.DoNotSchedule)
	if len(spreads) == 0 {
		return nil
	}
	return func(at place) []lack {
		for i := range spreads {
			if why := spreads[i].lack(at.node); why != "" {
				return lacking(why)
			}
		}
		return nil
	}
}

// lack is why the pod cannot run on a node for the sake of the constraint; empty: it can.
func (s *spread) lack(node *corev1.Node) string {
	const why = "node(s) didn't match pod topology spread constraints"
	value, ok := node.Labels[s.TopologyKey]
	switch {
	case !ok:
		return why + " (missing required label)"
	case s.counts[value]+s.self-s.least > s.MaxSkew:
		return why
	}
	return ""
}
