package pod

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods/validation"
)

// isGated says that a pod is held back from getting a node, for somebody who may narrow down meanwhile where it can run.
func isGated(pod *corev1.Pod) bool { return len(pod.Spec.SchedulingGates) > 0 }

// validateGatesUpdate lets gates be taken away only.
func validateGatesUpdate(newGates, oldGates []corev1.PodSchedulingGate, at *field.Path) (errs field.ErrorList) {
	for i, gate := range newGates {
		if !slices.Contains(oldGates, gate) {
			errs = append(errs, field.Forbidden(at.Index(i).Child("name"), fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", gate.Name)))
		}
	}
	return errs
}

// validatePlaceUpdate is about where a pod may run that is gated: what it asked for of nodes it still asks for, and more.
func validatePlaceUpdate(newSpec, oldSpec *corev1.PodSpec, at *field.Path) (errs field.ErrorList) {
	selector := at.Child("nodeSelector")
	for key, value := range oldSpec.NodeSelector {
		if now, ok := newSpec.NodeSelector[key]; !ok || now != value {
			errs = append(errs, field.Invalid(selector, newSpec.NodeSelector, "only additions to spec.nodeSelector are allowed (no mutations or deletions)"))
			break
		}
	}
	errs = append(errs, metavalidation.ValidateLabels(newSpec.NodeSelector, selector)...)
	if apiequality.Semantic.DeepEqual(nodesOf(newSpec.Affinity), nodesOf(oldSpec.Affinity)) {
		return errs
	}
	errs = append(errs, validation.NodeAffinity(newSpec.Affinity, at.Child("affinity"))...)
	terms := at.Child("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
	newTerms, oldTerms := requiredTerms(newSpec.Affinity), requiredTerms(oldSpec.Affinity)
	switch {
	case len(oldTerms) == 0: // all nodes would do: any terms are a narrowing
	case len(newTerms) != len(oldTerms): // another term would be another way to match
		errs = append(errs, field.Invalid(terms, newTerms, "no additions/deletions to non-empty NodeSelectorTerms list are allowed"))
	default:
		for i := range oldTerms {
			if !narrows(newTerms[i], oldTerms[i]) {
				errs = append(errs, field.Invalid(terms.Index(i), newTerms[i], "only additions are allowed (no mutations or deletions)"))
			}
		}
	}
	return errs
}

// narrows says that a term begins with all that the old one has. A term with nothing in it matches no node, and so may not get anything.
func narrows(term, old corev1.NodeSelectorTerm) bool {
	if len(old.MatchExpressions)+len(old.MatchFields) == 0 {
		return len(term.MatchExpressions)+len(term.MatchFields) == 0
	}
	begins := func(list, with []corev1.NodeSelectorRequirement) bool {
		return len(list) >= len(with) && apiequality.Semantic.DeepEqual(list[:len(with)], with)
	}
	return begins(term.MatchExpressions, old.MatchExpressions) && begins(term.MatchFields, old.MatchFields)
}

func nodesOf(affinity *corev1.Affinity) *corev1.NodeAffinity {
	if affinity == nil {
		return nil
	}
	return affinity.NodeAffinity
}

func requiredTerms(affinity *corev1.Affinity) []corev1.NodeSelectorTerm {
	nodes := nodesOf(affinity)
	if nodes == nil || nodes.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return nodes.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

// withNodesOf returns an affinity with what an old one says of nodes, to be compared with that.
func withNodesOf(affinity, old *corev1.Affinity) *corev1.Affinity {
	var with corev1.Affinity
	if affinity != nil {
		with = *affinity
	}
	with.NodeAffinity = nodesOf(old)
	if old == nil && with == (corev1.Affinity{}) {
		return nil
	}
	return &with
}
